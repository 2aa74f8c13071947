# SPDX-License-Identifier: Apache-2.0
# libcleave_llvm: Clang and LLVM 19 behind a C ABI, in a shared object of its own. LLVM is found
# through llvm-config, because LLVM's own CMake package also demands every optional library it was
# built with.
find_program(CLEAVE_LLVM_CONFIG NAMES llvm-config-19 llvm-config HINTS /usr/lib/llvm-19/bin)
if(NOT CLEAVE_LLVM_CONFIG)
    message(FATAL_ERROR "llvm-config-19 was not found: install LLVM and Clang 19 (Debian: llvm-19-dev, "
                        "libclang-19-dev), or set -DCLEAVE_LLVM_CONFIG=PATH")
endif()
execute_process(COMMAND ${CLEAVE_LLVM_CONFIG} --version OUTPUT_VARIABLE cleave_llvm_version
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(NOT cleave_llvm_version MATCHES "^19\\.")
    message(FATAL_ERROR "${CLEAVE_LLVM_CONFIG} is LLVM ${cleave_llvm_version}; Cleave needs LLVM 19")
endif()
execute_process(COMMAND ${CLEAVE_LLVM_CONFIG} --includedir OUTPUT_VARIABLE cleave_llvm_include
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CLEAVE_LLVM_CONFIG} --libdir OUTPUT_VARIABLE cleave_llvm_libdir
                OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
if(CLEAVE_PORTABLE)
    # Statically, the targets that Cleave makes code for alone: a quarter of the size, and none of
    # the libraries that the distribution's LLVM needs. Polly is left out;
    # compile/llvm_static/absent_parts.cpp stands in for the rest.
    execute_process(COMMAND ${CLEAVE_LLVM_CONFIG} --link-static --libs orcjit native amdgpu passes irreader bitwriter linker
                            option lto coverage frontenddriver frontendhlsl frontendopenmp windowsdriver
                    OUTPUT_VARIABLE llvm_archives OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(llvm_archives UNIX_COMMAND "${llvm_archives}")
    list(FILTER llvm_archives EXCLUDE REGEX "Polly")
    set(clang_archives Frontend Driver Serialization Parse Sema Analysis AST ASTMatchers Edit Lex Basic CodeGen Support APINotes
        ExtractAPI Rewrite)
    list(TRANSFORM clang_archives REPLACE "(.+)" "${cleave_llvm_libdir}/libclang\\1.a")
    set(cleave_llvm_archives -L${cleave_llvm_libdir} -Wl,--start-group ${clang_archives} ${llvm_archives}
        -Wl,--end-group)
    list(APPEND llvm_sources compile/llvm_static/absent_parts.cpp)
else()
    find_library(CLEAVE_LIBLLVM NAMES LLVM-19 LLVM HINTS ${cleave_llvm_libdir} REQUIRED)
    # Debian's libclang-cpp19 has no unversioned link; libclang-cpp19-dev adds one.
    find_library(CLEAVE_LIBCLANG_CPP NAMES libclang-cpp.so.19.1 clang-cpp HINTS ${cleave_llvm_libdir} REQUIRED)
    set(cleave_llvm_archives ${CLEAVE_LIBCLANG_CPP} ${CLEAVE_LIBLLVM})
endif()

# lld links AMD code objects. It exists as static libraries alone, which Debian builds against zlib
# and zstd.
find_library(CLEAVE_LLD_ELF NAMES lldELF HINTS ${cleave_llvm_libdir})
find_library(CLEAVE_LLD_COMMON NAMES lldCommon HINTS ${cleave_llvm_libdir})
if(NOT CLEAVE_LLD_ELF OR NOT CLEAVE_LLD_COMMON)
    message(FATAL_ERROR "lld's libraries were not found in ${cleave_llvm_libdir}: install liblld-19-dev")
endif()
find_package(ZLIB REQUIRED)
find_library(CLEAVE_ZSTD NAMES zstd REQUIRED)

add_library(cleave_llvm SHARED ${llvm_sources})
target_include_directories(cleave_llvm SYSTEM PRIVATE ${cleave_llvm_include})
target_include_directories(cleave_llvm PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(cleave_llvm PRIVATE ${CLEAVE_LLD_ELF} ${CLEAVE_LLD_COMMON} ${cleave_llvm_archives} ZLIB::ZLIB
                      ${CLEAVE_ZSTD})
target_link_options(cleave_llvm PRIVATE LINKER:--exclude-libs,ALL $<$<BOOL:${CLEAVE_PORTABLE}>:LINKER:--gc-sections>
                    LINKER:--no-undefined)
set_target_properties(cleave_llvm PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
target_compile_options(cleave_llvm PRIVATE -Wno-unused-parameter)
if(NOT CLEAVE_FUZZ) # its targets compile no kernel
    add_dependencies(cleave_codegen cleave_llvm)
endif()
install(TARGETS cleave_llvm LIBRARY DESTINATION lib)

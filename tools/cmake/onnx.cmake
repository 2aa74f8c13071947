# SPDX-License-Identifier: Apache-2.0
# Defines cleave::onnx: the ONNX C++ library, its headers and the Protobuf it was built with.
# Takes, in this order: -DCLEAVE_ONNX_PREFIX=DIR; an installed ONNX of the version we need or newer;
# the one that tools/setup built into the user's cache. Otherwise configuring stops and says what to
# do.
if(TARGET cleave::onnx)
    return()
endif()

# The pinned version is the one that tools/setup builds; an installed one may be any patch of that
# release.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tools/dependencies)
file(STRINGS ${CMAKE_SOURCE_DIR}/tools/dependencies _onnx_pin REGEX "^pypi-source +onnx +[0-9.]+")
string(REGEX REPLACE "^pypi-source +onnx +([0-9.]+).*" "\\1" _onnx_pinned "${_onnx_pin}")
string(REGEX REPLACE "^([0-9]+\\.[0-9]+).*" "\\1" _onnx_minimum "${_onnx_pinned}")

if(DEFINED ENV{XDG_CACHE_HOME} AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(_onnx_cached "$ENV{XDG_CACHE_HOME}/cleave/onnx-${_onnx_pinned}")
else()
    set(_onnx_cached "$ENV{HOME}/.cache/cleave/onnx-${_onnx_pinned}")
endif()

# ONNX's exported target names protobuf::libprotobuf; Debian ships no CMake config for Protobuf, so
# the module that CMake carries has to define it first.
find_package(Protobuf 3.21 REQUIRED)

if(CLEAVE_ONNX_PREFIX)
    find_package(ONNX ${_onnx_minimum} CONFIG QUIET PATHS ${CLEAVE_ONNX_PREFIX} NO_DEFAULT_PATH)
else()
    find_package(ONNX ${_onnx_minimum} CONFIG QUIET)
    if(NOT ONNX_FOUND)
        find_package(ONNX ${_onnx_minimum} CONFIG QUIET PATHS ${_onnx_cached} NO_DEFAULT_PATH)
    endif()
endif()
if(NOT ONNX_FOUND)
    message(FATAL_ERROR
        "ONNX ${_onnx_minimum} or newer (C++ library) not found: neither installed nor in ${_onnx_cached}.\n"
        "Run tools/setup, which builds it (about a minute), or pass -DCLEAVE_ONNX_PREFIX=DIR.")
endif()
if(NOT TARGET ONNX::onnx)
    message(FATAL_ERROR "${ONNX_DIR} defines no target ONNX::onnx; "
        "pass -DCLEAVE_ONNX_PREFIX=DIR of an ONNX ${_onnx_minimum} or newer, or run tools/setup.")
endif()
# Every folder that links the importer has to see these, not only the one that included this file.
set_target_properties(ONNX::onnx PROPERTIES IMPORTED_GLOBAL TRUE)
set(CLEAVE_ONNX_VERSION "${ONNX_VERSION}" CACHE INTERNAL "for `cleave doctor`")
message(STATUS "Found ONNX: ${ONNX_DIR} (version ${ONNX_VERSION})")

add_library(cleave_onnx INTERFACE)
target_link_libraries(cleave_onnx INTERFACE ONNX::onnx)
add_library(cleave::onnx ALIAS cleave_onnx)

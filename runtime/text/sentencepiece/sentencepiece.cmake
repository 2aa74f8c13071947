# SPDX-License-Identifier: Apache-2.0
# libcleave_sentencepiece: SentencePiece behind a C ABI, in a shared object of its own.
# SentencePiece is often built with an older Protobuf whose symbols it exports (Debian: 3.14); in
# one program with ONNX's Protobuf the two would be mixed up, and Protobuf ends a process in which
# it finds two versions.
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
file(GLOB sentencepiece_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
add_library(cleave_sentencepiece SHARED ${sentencepiece_sources})
target_include_directories(cleave_sentencepiece PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(cleave_sentencepiece PRIVATE PkgConfig::SENTENCEPIECE)
set_target_properties(cleave_sentencepiece PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
install(TARGETS cleave_sentencepiece LIBRARY DESTINATION lib)

# SPDX-License-Identifier: Apache-2.0
# Defines cleave::xgrammar: grammars over tokens, for answers that keep a JSON schema.
# Takes -DCLEAVE_XGRAMMAR_PREFIX=DIR, else the one that tools/setup built into the user's cache:
# Cleave reads its warnings, which an installed one prints. Otherwise configuring stops and says
# what to do.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tools/dependencies)
file(STRINGS ${CMAKE_SOURCE_DIR}/tools/dependencies _xgrammar_pin REGEX "^pypi-source +xgrammar +[0-9.]+")
string(REGEX REPLACE "^pypi-source +xgrammar +([0-9.]+).*" "\\1" _xgrammar_version "${_xgrammar_pin}")

if(CLEAVE_XGRAMMAR_PREFIX)
    set(_xgrammar_prefix ${CLEAVE_XGRAMMAR_PREFIX})
elseif(DEFINED ENV{XDG_CACHE_HOME} AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(_xgrammar_prefix "$ENV{XDG_CACHE_HOME}/cleave/xgrammar-${_xgrammar_version}")
else()
    set(_xgrammar_prefix "$ENV{HOME}/.cache/cleave/xgrammar-${_xgrammar_version}")
endif()
set(_xgrammar_library ${_xgrammar_prefix}/lib/libxgrammar.a)
if(NOT EXISTS ${_xgrammar_library})
    message(FATAL_ERROR
        "xgrammar ${_xgrammar_version} (C++ library) not found in ${_xgrammar_prefix}.\n"
        "Run tools/setup, which builds it (about a minute), or pass -DCLEAVE_XGRAMMAR_PREFIX=DIR.")
endif()
message(STATUS "Found xgrammar: ${_xgrammar_library} (version ${_xgrammar_version})")

find_package(Threads REQUIRED)
add_library(cleave_xgrammar INTERFACE)
target_include_directories(cleave_xgrammar SYSTEM INTERFACE ${_xgrammar_prefix}/include)
target_link_libraries(cleave_xgrammar INTERFACE ${_xgrammar_library} Threads::Threads)
add_library(cleave::xgrammar ALIAS cleave_xgrammar)

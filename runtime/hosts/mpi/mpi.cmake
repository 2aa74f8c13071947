# SPDX-License-Identifier: Apache-2.0
# libcleave_mpi: MPI behind a C ABI, in a shared object of its own that only processes of mpirun
# open. Without MPI (Debian: libopenmpi-dev) it is left out, and a plan runs on one host.
find_package(MPI COMPONENTS C QUIET)
if(MPI_C_FOUND AND NOT CLEAVE_FUZZ)
    add_library(cleave_mpi SHARED ${CMAKE_CURRENT_LIST_DIR}/mpi_table.cpp)
    target_include_directories(cleave_mpi PRIVATE ${CMAKE_SOURCE_DIR})
    target_link_libraries(cleave_mpi PRIVATE MPI::MPI_C)
    # The C++ bindings that MPI 3.0 removed.
    target_compile_definitions(cleave_mpi PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
    set_target_properties(cleave_mpi PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
    install(TARGETS cleave_mpi LIBRARY DESTINATION lib)
endif()

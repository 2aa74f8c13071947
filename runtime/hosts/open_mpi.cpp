// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <string>

#include "runtime/base/dynamic_library.h"
#include "runtime/hosts/job.h"

namespace cleave::runtime {

// Open MPI's mpirun sets the first; the others are those of process managers by PMI-1 and PMI-2,
// as MPICH's.
bool is_launched_by_mpi() {
    return std::getenv("OMPI_COMM_WORLD_SIZE") || std::getenv("PMI_SIZE") || std::getenv("PMI_FD");
}

void demand_all_processes(const HostJob& job) {
    for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
        if (const char* size = std::getenv(variable); size && size != std::to_string(job.size()))
            throw UserError(
                "{}={}: so many processes were started, and {} knows of {}: another MPI's launcher "
                "started them, or the variable is left over; start ranks by Open MPI's mpirun, or "
                "unset it (env -u {})",
                variable, size, job.library(), job.size(), variable);
}

const cleave_mpi_table& open_mpi() {
    static const cleave_mpi_table* table = [] {
        std::string why;
        auto found = DynamicLibrary::open_first(library_names("libcleave_mpi.so"), &why,
                                                DynamicLibrary::Scope::kGlobal);
        if (!found)
            throw UserError(
                "mpirun started this process, and this build cannot take part: {}; build Cleave "
                "where Open MPI is installed (Debian: libopenmpi-dev)",
                why);
        DynamicLibrary& library = kept_open(std::move(*found));
        auto* open = library.function<const cleave_mpi_table*()>("cleave_mpi_open");
        const cleave_mpi_table* opened = open ? open() : nullptr;
        if (!opened || opened->abi_version != CLEAVE_MPI_ABI_VERSION)
            throw UserError("{} is of another version of Cleave; install both from one build",
                            library.name());
        return opened;
    }();
    return *table;
}

}  // namespace cleave::runtime

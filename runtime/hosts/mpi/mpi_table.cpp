// SPDX-License-Identifier: Apache-2.0
// The table over MPI (MPI 3.1; https://www.mpi-forum.org/docs/mpi-3.1/mpi31-report.pdf). All
// traffic is on a communicator of its own, whose errors are returned.
#include "runtime/hosts/mpi_table.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

struct cleave_mpi_request {
    MPI_Request request = MPI_REQUEST_NULL;
};

namespace {

struct World {
    MPI_Comm comm = MPI_COMM_NULL;
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    cleave_mpi_table table{};
};

struct End {
    std::atomic<void (*)(void* context)> told{nullptr};
    void* context = nullptr;
};
End at_end;

World& of(void* world) { return *static_cast<World*>(world); }

#ifdef OPEN_MPI
int say_nothing(const char*, const char*, int, ...) { return 0; }

// Open MPI 4 words its complaints about connections for mpirun, and its thread sleeps until mpirun
// has them (orte/util/show_help.c), which it never may once a rank has died. What they are about is
// said by this rank anyhow. Those of MPI_Init stay.
void complain_no_more() {
    if (void* words = dlsym(RTLD_DEFAULT, "opal_show_help"))
        *static_cast<int (**)(const char*, const char*, int, ...)>(words) = say_nothing;
}
#else
void complain_no_more() {}
#endif

int init(void* world, int* rank, int* size, char* host, int capacity) {
    int provided = 0;
    if (int e = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided)) return e;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (int e = MPI_Comm_dup(MPI_COMM_WORLD, &of(world).comm)) return e;
    MPI_Comm_set_errhandler(of(world).comm, MPI_ERRORS_RETURN);
    complain_no_more();
    MPI_Comm_rank(of(world).comm, rank);
    MPI_Comm_size(of(world).comm, size);
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    int length = 0;
    if (int e = MPI_Get_processor_name(name, &length)) return e;
    std::snprintf(host, static_cast<size_t>(capacity), "%.*s", length, name);
    return 0;
}

// Counts of MPI 3.1 are ints: what is longer is refused before it is sent.
int send(void* world, const void* bytes, int64_t size, int to, int tag,
         cleave_mpi_request** request) {
    if (size > INT32_MAX) return MPI_ERR_COUNT;
    auto* made = new (std::nothrow) cleave_mpi_request;
    if (!made) return MPI_ERR_NO_MEM;
    *request = made;
    return MPI_Isend(bytes, static_cast<int>(size), MPI_BYTE, to, tag, of(world).comm,
                     &made->request);
}

int receive(void* world, void* bytes, int64_t size, int from, int tag,
            cleave_mpi_request** request) {
    if (size > INT32_MAX) return MPI_ERR_COUNT;
    auto* made = new (std::nothrow) cleave_mpi_request;
    if (!made) return MPI_ERR_NO_MEM;
    *request = made;
    return MPI_Irecv(bytes, static_cast<int>(size), MPI_BYTE, from, tag, of(world).comm,
                     &made->request);
}

int test(void*, cleave_mpi_request* request, int* done, int64_t* size) {
    MPI_Status status;
    const int error = MPI_Test(&request->request, done, &status);
    if (error) return error;
    if (!*done) return 0;
    int count = 0;
    MPI_Get_count(&status, MPI_BYTE, &count);
    *size = count;
    delete request;
    return 0;
}

int probe(void* world, int tag, int* found, int* from, int64_t* size) {
    MPI_Status status;
    if (int e = MPI_Iprobe(MPI_ANY_SOURCE, tag, of(world).comm, found, &status)) return e;
    if (!*found) return 0;
    int count = 0;
    *from = status.MPI_SOURCE;
    const int error = MPI_Get_count(&status, MPI_BYTE, &count);
    *size = count;
    return error;
}

int finalize(void*) { return MPI_Finalize(); }

void error_text(void*, int error, char* text, int capacity) {
    char whole[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    if (MPI_Error_string(error, whole, &length)) length = 0;
    std::snprintf(text, static_cast<size_t>(capacity), "%.*s", length, whole);
}

void on_end(void*, void (*told)(void* context), void* context) {
    at_end.context = context;
    at_end.told = told;
}

}  // namespace

#ifdef OPEN_MPI
// Open MPI 4 ends a process by this function of libmpi where a connection breaks, whatever the
// communicators' error handlers say (ompi/mca/pml/ob1/pml_ob1.c, mca_pml_ob1_error_handler). This
// library is opened for all (RTLD_GLOBAL) and stands before libmpi in the order of look-up, so its
// components call this one: the process then has the time to say why it ends.
// NOLINTNEXTLINE(readability-identifier-naming): a name of C
extern "C" __attribute__((visibility("default"), noreturn)) void ompi_rte_abort(int code,
                                                                                char* text, ...) {
    if (auto* told = at_end.told.exchange(nullptr))
        told(at_end.context);
    else if (!at_end.context)
        if (void* theirs = dlsym(RTLD_NEXT, "ompi_rte_abort"))
            reinterpret_cast<void (*)(int, char*, ...)>(theirs)(code, text);
    for (;;) pause();
}
#endif

// NOLINTNEXTLINE(readability-identifier-naming): a name of C
extern "C" __attribute__((visibility("default"))) const cleave_mpi_table* cleave_mpi_open(void) {
    static World world;
    int length = 0;
    MPI_Get_library_version(world.library, &length);
    // Its first part is the name: "Open MPI v4.1.4, package: ...".
    if (char* comma = std::strchr(world.library, ',')) *comma = 0;
    world.table = {CLEAVE_MPI_ABI_VERSION,
                   &world,
                   world.library,
                   init,
                   send,
                   receive,
                   test,
                   probe,
                   finalize,
                   error_text,
                   on_end};
    return &world.table;
}

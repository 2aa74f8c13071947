// SPDX-License-Identifier: Apache-2.0
// The C ABI of libcleave_mpi, the only library of Cleave that links MPI. It is opened in a process
// that mpirun started, and nowhere else. One thread makes all calls. A call never blocks but
// `init` and `finalize`; an error is its MPI code, which `error_text` explains; 0 is success.
// `world` is what `cleave_mpi_open` put in the table.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CLEAVE_MPI_ABI_VERSION 2

// NOLINTBEGIN(readability-identifier-naming): names of C
typedef struct cleave_mpi_request cleave_mpi_request;

typedef struct cleave_mpi_table {
    int32_t abi_version;
    void* world;
    // Of the library that was opened: "Open MPI v4.1.4".
    const char* library;
    // Joins the run: this process's number, how many there are, and the name of its host.
    int (*init)(void* world, int* rank, int* size, char* host, int capacity);
    // The memory stays the caller's, and as it is, until `test` says done.
    int (*send)(void* world, const void* bytes, int64_t size, int to, int tag,
                cleave_mpi_request** request);
    int (*receive)(void* world, void* bytes, int64_t size, int from, int tag,
                   cleave_mpi_request** request);
    // Whether a request is done, which ends it; of a receipt the bytes that came.
    int (*test)(void* world, cleave_mpi_request* request, int* done, int64_t* size);
    // Whether a message with that tag can be received, from anybody.
    int (*probe)(void* world, int tag, int* found, int* from, int64_t* size);
    int (*finalize)(void* world);
    void (*error_text)(void* world, int error, char* text, int capacity);
    // Where MPI is about to end this process, as when a connection breaks, it calls `told` instead,
    // once, on whichever thread found out; that thread then stops where it is, for ever.
    void (*on_end)(void* world, void (*told)(void* context), void* context);
} cleave_mpi_table;

const cleave_mpi_table* cleave_mpi_open(void);
// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif

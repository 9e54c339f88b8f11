/* tests/exec/ranks_sent.c: listens to MPI_Isend through MPI's profiling interface. */
#include "tests/exec/ranks_sent.h"

#include <mpi.h>

/* MPI calls us without a place for what we know. */
static int64_t sent_bytes;

int MPI_Isend(const void *from, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    int each = 0;
    PMPI_Type_size(type, &each);
    sent_bytes += (int64_t)count * each;
    return PMPI_Isend(from, count, type, to, tag, comm, request);
}

int64_t ranks_sent_bytes(void)
{
    return sent_bytes;
}

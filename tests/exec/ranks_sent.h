/* tests/exec/ranks_sent.h: bytes of messages as MPI is asked to send them. */
#ifndef TESTS_EXEC_RANKS_SENT_H
#define TESTS_EXEC_RANKS_SENT_H

#include <stdint.h>

/* Of this rank, since it started; what ranks agree on by collectives of MPI's own left out. */
int64_t ranks_sent_bytes(void);

#endif

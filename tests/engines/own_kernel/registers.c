/* ptrace(2) for User-mode Linux on processors with more registers than it knows, such as those with AMX; for LD_PRELOAD.

User-mode Linux 6.1 reads and writes the first 2,696 bytes of the extended state of a process, while Linux takes the whole
state or answers EFAULT: the kernel panics at its first process. What lies behind these bytes is written as it was read. */
#include <elf.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static char state[1 << 16];

static long call(int request, pid_t pid, void *address, void *data)
{
    long word = 0;
    int is_peek = request == PTRACE_PEEKTEXT || request == PTRACE_PEEKDATA || request == PTRACE_PEEKUSER;
    long code = syscall(SYS_ptrace, request, pid, address, is_peek ? &word : data);
    return is_peek && code == 0 ? word : code;
}

long ptrace(enum __ptrace_request request, ...)
{
    va_list words;
    va_start(words, request);
    pid_t pid = va_arg(words, pid_t);
    void *address = va_arg(words, void *);
    void *data = va_arg(words, void *);
    va_end(words);
    struct iovec whole = {state, sizeof state};
    if (request != PTRACE_SETREGSET || address != (void *)NT_X86_XSTATE || call(PTRACE_GETREGSET, pid, address, &whole) != 0)
        return call(request, pid, address, data);
    const struct iovec *known = data;
    memcpy(state, known->iov_base, known->iov_len);
    return call(request, pid, address, &whole);
}

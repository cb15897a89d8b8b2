/*
 * Makes each fdatasync() take 300 milliseconds more while the file exists that the environment
 * variable SLOW_SYNC names. For LD_PRELOAD: a disk that is slow.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

int fdatasync(int fd)
{
    static int (*sync)(int);
    const char *file = getenv("SLOW_SYNC");

    if (file && access(file, F_OK) == 0)
        usleep(300000);
    if (!sync)
        sync = (int (*)(int)) dlsym(RTLD_NEXT, "fdatasync");
    return sync(fd);
}

/* What stands between a server and its disk and clock (LD_PRELOAD).
 *
 * TORTURE_DIRECTORY  files in this directory are concerned, and no others
 * TORTURE_JOURNAL    every change of them is recorded in this file: what, when it began and when it was over
 * TORTURE_CONTROL    a file of `struct control`, shared with the harness: calls that are to fail, and the clock's offset
 *
 * The log's index (-shm) and lock files are not recorded: the one is made anew at a start, the others mean nothing.
 * Calls on these files are made one at a time, so the order of the records is the order of the calls.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPEN = 1, WRITE = 2, SYNC = 3, TRUNCATE = 4, UNLINK = 5, RENAME = 6 };

struct control {
    int64_t clock_offset_ns;
    int64_t failing_calls; /* bits: 1 << WRITE and so on */
    int64_t error;         /* errno */
    int64_t calls_before;  /* so many of these calls still succeed */
    int64_t failures;      /* then so many fail */
    int64_t failed;        /* so many have failed in all */
    int64_t is_short;      /* a write that fails writes half of its bytes first */
};

struct record {
    uint32_t magic;
    int32_t kind;
    int64_t begun_ns, ended_ns;
    uint64_t file; /* inode */
    int64_t offset, length;
    int32_t error; /* 0: it has succeeded */
    uint32_t data_bytes;
} __attribute__((packed));

#define MAGIC 0x544a4c31
#define MOST_FILES 65536

static struct control no_control, *control = &no_control;
static char directory[4096];
static size_t directory_bytes;
static int journal = -1;
static uint64_t file_of[MOST_FILES]; /* by descriptor: the inode of a file that is concerned, or 0 */
static char is_recorded[MOST_FILES];
static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ({ static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name); real; })

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("TORTURE_DIRECTORY");
    if (path && realpath(path, directory))
        directory_bytes = strlen(directory);
    path = getenv("TORTURE_JOURNAL");
    if (path)
        journal = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    path = getenv("TORTURE_CONTROL");
    int fd = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0) : -1;
    if (fd >= 0) {
        void *shared = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (shared != MAP_FAILED)
            control = shared;
        syscall(SYS_close, fd);
    }
}

static int64_t now_ns(void)
{
    struct timespec now;
    REAL(clock_gettime)(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Whether the path is the directory, or a file in it. */
static int is_concerned(const char *path)
{
    if (!directory_bytes || !path || strncmp(path, directory, directory_bytes))
        return 0;
    return path[directory_bytes] == 0 || path[directory_bytes] == '/';
}

static int ends_with(const char *path, const char *end)
{
    size_t length = strlen(path), end_length = strlen(end);
    return length >= end_length && !strcmp(path + length - end_length, end);
}

/* Whether this call is to fail; then errno is set. */
static int fails(int kind)
{
    if (!(control->failing_calls & (1 << kind)))
        return 0;
    if (__atomic_fetch_sub(&control->calls_before, 1, __ATOMIC_SEQ_CST) > 0)
        return 0;
    if (__atomic_fetch_sub(&control->failures, 1, __ATOMIC_SEQ_CST) <= 0) {
        control->failing_calls = 0;
        return 0;
    }
    __atomic_fetch_add(&control->failed, 1, __ATOMIC_SEQ_CST);
    errno = control->error;
    return 1;
}

static void record(int kind, int64_t begun_ns, uint64_t file, int64_t offset, int64_t length, int error,
                   const void *data, size_t data_bytes)
{
    if (journal < 0)
        return;
    int saved = errno;
    struct record head = {MAGIC, kind, begun_ns, now_ns(), file, offset, length, error, data_bytes};
    struct iovec parts[2] = {{&head, sizeof head}, {(void *)data, data_bytes}};
    syscall(SYS_writev, journal, parts, data_bytes ? 2 : 1);
    errno = saved;
}

static int is_ours(int fd)
{
    return fd >= 0 && fd < MOST_FILES && file_of[fd];
}

static int opened(int at, const char *path, int flags, mode_t mode)
{
    if (!is_concerned(path))
        return syscall(SYS_openat, at, path, flags, mode);
    pthread_mutex_lock(&one_at_a_time);
    int64_t begun_ns = now_ns();
    struct stat status;
    int fd = -1;
    int is_new = syscall(SYS_newfstatat, AT_FDCWD, path, &status, 0) < 0;
    if (!ends_with(path, ".lock") && fails(OPEN))
        goto done;
    fd = syscall(SYS_openat, at, path, flags, mode);
    if (fd >= 0 && fd < MOST_FILES && !syscall(SYS_fstat, fd, &status)) {
        file_of[fd] = status.st_ino;
        is_recorded[fd] = !ends_with(path, "-shm") && !ends_with(path, ".lock");
        if (is_recorded[fd])
            record(OPEN, begun_ns, status.st_ino, is_new, 0, 0, path, strlen(path));
    }
done:
    pthread_mutex_unlock(&one_at_a_time);
    return fd;
}

#define OPENING(name)                                  \
    int name(const char *path, int flags, ...)         \
    {                                                  \
        va_list arguments;                             \
        va_start(arguments, flags);                    \
        mode_t mode = va_arg(arguments, mode_t);       \
        va_end(arguments);                             \
        return opened(AT_FDCWD, path, flags, mode);    \
    }
#define OPENING_AT(name)                               \
    int name(int at, const char *path, int flags, ...) \
    {                                                  \
        va_list arguments;                             \
        va_start(arguments, flags);                    \
        mode_t mode = va_arg(arguments, mode_t);       \
        va_end(arguments);                             \
        return opened(at, path, flags, mode);          \
    }
OPENING(open)
OPENING(open64)
OPENING_AT(openat)
OPENING_AT(openat64)

int close(int fd)
{
    if (fd >= 0 && fd < MOST_FILES)
        file_of[fd] = 0;
    return REAL(close)(fd);
}

static ssize_t written(int fd, const void *data, size_t size, off_t offset)
{
    pthread_mutex_lock(&one_at_a_time);
    int64_t begun_ns = now_ns();
    ssize_t result = -1;
    if (!fails(WRITE))
        result = syscall(SYS_pwrite64, fd, data, size, offset);
    else if (control->is_short && size > 1)
        result = syscall(SYS_pwrite64, fd, data, size / 2, offset);
    if (is_recorded[fd])
        record(WRITE, begun_ns, file_of[fd], offset, size, result < 0 ? errno : 0, data, result < 0 ? 0 : result);
    pthread_mutex_unlock(&one_at_a_time);
    return result;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    return is_ours(fd) ? written(fd, data, size, offset) : syscall(SYS_pwrite64, fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    return pwrite(fd, data, size, offset);
}

ssize_t write(int fd, const void *data, size_t size)
{
    if (!is_ours(fd))
        return REAL(write)(fd, data, size);
    off_t offset = lseek(fd, 0, SEEK_CUR);
    ssize_t result = written(fd, data, size, offset);
    if (result > 0)
        lseek(fd, offset + result, SEEK_SET);
    return result;
}

static int synced(int fd, int number)
{
    pthread_mutex_lock(&one_at_a_time);
    int64_t begun_ns = now_ns();
    int result = fails(SYNC) ? -1 : syscall(number, fd);
    if (is_recorded[fd])
        record(SYNC, begun_ns, file_of[fd], 0, 0, result < 0 ? errno : 0, NULL, 0);
    pthread_mutex_unlock(&one_at_a_time);
    return result;
}

int fsync(int fd)
{
    return is_ours(fd) ? synced(fd, SYS_fsync) : REAL(fsync)(fd);
}

int fdatasync(int fd)
{
    return is_ours(fd) ? synced(fd, SYS_fdatasync) : REAL(fdatasync)(fd);
}

int ftruncate(int fd, off_t length)
{
    if (!is_ours(fd))
        return syscall(SYS_ftruncate, fd, length);
    pthread_mutex_lock(&one_at_a_time);
    int64_t begun_ns = now_ns();
    int result = fails(TRUNCATE) ? -1 : syscall(SYS_ftruncate, fd, length);
    if (is_recorded[fd])
        record(TRUNCATE, begun_ns, file_of[fd], 0, length, result < 0 ? errno : 0, NULL, 0);
    pthread_mutex_unlock(&one_at_a_time);
    return result;
}

int ftruncate64(int fd, off64_t length)
{
    return ftruncate(fd, length);
}

int unlink(const char *path)
{
    if (!is_concerned(path))
        return REAL(unlink)(path);
    pthread_mutex_lock(&one_at_a_time);
    int64_t begun_ns = now_ns();
    int result = fails(UNLINK) ? -1 : syscall(SYS_unlink, path);
    record(UNLINK, begun_ns, 0, 0, 0, result < 0 ? errno : 0, path, strlen(path));
    pthread_mutex_unlock(&one_at_a_time);
    return result;
}

int rename(const char *from, const char *to)
{
    if (!is_concerned(from) && !is_concerned(to))
        return REAL(rename)(from, to);
    pthread_mutex_lock(&one_at_a_time);
    int64_t begun_ns = now_ns();
    int result = fails(RENAME) ? -1 : syscall(SYS_rename, from, to);
    char both[8192];
    size_t from_bytes = strnlen(from, 4095), to_bytes = strnlen(to, 4095);
    memcpy(both, from, from_bytes);
    both[from_bytes] = 0;
    memcpy(both + from_bytes + 1, to, to_bytes);
    record(RENAME, begun_ns, 0, 0, 0, result < 0 ? errno : 0, both, from_bytes + 1 + to_bytes);
    pthread_mutex_unlock(&one_at_a_time);
    return result;
}

/* The clock on the wall; the monotonic one is left alone. */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = REAL(clock_gettime)(clock, now);
    if (!result && control->clock_offset_ns && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t total = now->tv_sec * 1000000000LL + now->tv_nsec + control->clock_offset_ns;
        now->tv_sec = total / 1000000000LL;
        now->tv_nsec = total % 1000000000LL;
    }
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (result)
        *result = exact.tv_sec;
    return exact.tv_sec;
}

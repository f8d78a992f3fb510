/* Stands before fsync and fdatasync of a process that is started with it in LD_PRELOAD.
 *
 * Each call appends the line "begin PATH" to the file that SYNC_LOG names, waits while the file that
 * SYNC_HOLD names is there, syncs, and appends "end PATH". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void note(const char *what, const char *path) {
  const char *log = getenv("SYNC_LOG");
  char line[5000];
  int len = snprintf(line, sizeof line, "%s %s\n", what, path);
  int fd = log ? open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
  if (fd < 0 || write(fd, line, len) != len) abort();
  close(fd);
}

static int sync_one(long call, int fd) {
  char link[64], path[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t len = readlink(link, path, sizeof path - 1);
  path[len < 0 ? 0 : len] = 0;
  note("begin", path);
  const char *hold = getenv("SYNC_HOLD");
  while (hold && access(hold, F_OK) == 0) usleep(1000);
  int result = (int)syscall(call, fd);
  note("end", path);
  return result;
}

int fsync(int fd) { return sync_one(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_one(SYS_fdatasync, fd); }

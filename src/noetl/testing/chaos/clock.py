"""Wrong clocks: a library that shifts the wall clock of processes which load it, by an offset they read from a file.

It is built with the machine's C compiler; without one no clock is shifted, and the run says so. It reaches everything
that asks the C library for the time, Python and PostgreSQL among them, but not Go programs, which ask the kernel.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

_SOURCE: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset_ns;

__attribute__((constructor)) static void load(void) {
    const char *path = getenv("NOETL_CLOCK_OFFSET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) offset_ns = mapped;
}

static void shift(struct timespec *at) {
    if (!offset_ns) return;
    int64_t whole = (int64_t)at->tv_sec * 1000000000 + at->tv_nsec + *offset_ns;
    at->tv_sec = whole / 1000000000;
    at->tv_nsec = whole % 1000000000;
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, at);
    if (answer == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) shift(at);
    return answer;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
"""


class WrongClocks:
    """Clocks by name, each right until it is set."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._library = directory / "clock.so"

    def build(self) -> bool:
        """Build the library; False if there is no compiler."""
        compiler = shutil.which("cc")
        if compiler is None:
            return False
        source = self._directory / "clock.c"
        source.write_text(_SOURCE, encoding="utf-8")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", self._library, source, "-ldl"], check=True)
        return True

    def environ(self, name: str) -> dict[str, str]:
        """Return the variables that make a process live by this clock; none if nothing was built."""
        if not self._library.exists():
            return {}
        self.set(name, 0.0)
        return {"LD_PRELOAD": str(self._library), "NOETL_CLOCK_OFFSET": str(self._file(name))}

    def set(self, name: str, seconds: float) -> None:
        """Let a clock be wrong by so many seconds from now on."""
        # Written in place: whoever lives by the clock has this very file mapped.
        with self._file(name).open("r+b" if self._file(name).exists() else "wb") as file:
            file.write(struct.pack("=q", int(seconds * 1e9)))

    def _file(self, name: str) -> Path:
        return self._directory / f"{name}.clock"

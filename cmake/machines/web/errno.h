// Before wasi-libc's own declaration of errno, whose guard it sets: Debian's C library was compiled for one
// thread and has one errno for all, so that modules with threads must not look for one of each thread's.
// Nothing that their threads run asks for it.
#ifndef __wasilibc___errno_h
#define __wasilibc___errno_h

#ifdef __cplusplus
extern "C" int errno;
#else
extern int errno;
#endif

#define errno errno

#endif

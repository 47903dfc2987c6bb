/* DOPPLER_API marks what the shared library shows to programs; everything else in it is hidden.
 * DOPPLER_HIDDEN takes a part of such a class out again. Plain C, so that every public header may include it.
 */
#ifndef DOPPLER_EXPORT_H
#define DOPPLER_EXPORT_H

#if defined(__GNUC__) && !defined(_WIN32)
#define DOPPLER_API __attribute__((visibility("default")))
#define DOPPLER_HIDDEN __attribute__((visibility("hidden")))
#else
#define DOPPLER_API
#define DOPPLER_HIDDEN
#endif

#endif

// Sanitized builds only: libraries stay loaded. LeakSanitizer looks for pointers in the memory of those that
// are there when the program ends; what a graphics driver's layer holds would count as lost once it is
// unloaded.
#if DOPPLER_SANITIZED

extern "C" int dlclose(void* /*library*/) {
  return 0;
}

#endif

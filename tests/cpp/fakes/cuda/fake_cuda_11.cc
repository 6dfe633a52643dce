// A fake: a libcuda.so.1 of CUDA 11.4, from before the function that we find all others by.
extern "C" {
int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}
}

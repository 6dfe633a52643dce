// A fake: a libcuda.so.1 of CUDA 11.4, which does not have the function that looks up all others.
extern "C" {
int cuInit(unsigned) { return 0; }
int cuDriverGetVersion(int* version) {
  *version = 11040;
  return 0;
}
}

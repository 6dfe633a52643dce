// The unwinder symbols of libgcc_s.so.1, for the linker only: every system with glibc has the real
// library.
#define HAS(name) void _Unwind_##name(void) {}
HAS(Backtrace)
HAS(DeleteException)
HAS(ForcedUnwind)
HAS(GetCFA)
HAS(GetDataRelBase)
HAS(GetGR)
HAS(GetIP)
HAS(GetIPInfo)
HAS(GetLanguageSpecificData)
HAS(GetRegionStart)
HAS(GetTextRelBase)
HAS(RaiseException)
HAS(Resume)
HAS(Resume_or_Rethrow)
HAS(SetGR)
HAS(SetIP)

#include "wire/crc32c.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "wire/crc32c_impl.h"

#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)  // Clang has a separate feature for the instruction; not every GCC knows its name
#define PC_CRC_FEATURES "sse4.2,crc32"
#else
#define PC_CRC_FEATURES "sse4.2"
#endif
#define PC_CRC_INSTRUCTION __attribute__((target(PC_CRC_FEATURES)))
#define PC_CRC_BOTH __attribute__((target(PC_CRC_FEATURES ",avx2,vpclmulqdq,pclmul")))
#define PC_CRC_FOLDING __attribute__((target(PC_CRC_FEATURES ",avx512f,avx512vl,vpclmulqdq,pclmul")))
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#define PC_CRC_INSTRUCTION __attribute__((target("+crc")))
#endif

namespace pc {
namespace {

// Bit i of a register is the coefficient of x^(31-i), as everywhere in CRC32C.
constexpr uint32_t kPolynomial = 0x82f63b78;

constexpr uint32_t times_x(uint32_t r) { return (r >> 1) ^ (kPolynomial & (0u - (r & 1))); }

// x^n modulo the polynomial.
constexpr uint32_t power_of_x(unsigned n) {
  uint32_t r = 0x80000000;
  for (unsigned i = 0; i < n; ++i) r = times_x(r);
  return r;
}

// a * b modulo the polynomial.
constexpr uint32_t product(uint32_t a, uint32_t b) {
  uint32_t sum = 0;
  for (int i = 0; i < 32; ++i, b = times_x(b)) {
    if ((a >> (31 - i)) & 1) sum ^= b;
  }
  return sum;
}

// kZeros[k][b] is the register after byte b and then k zero bytes.
using ByteTable = std::array<std::array<uint32_t, 256>, 8>;
constexpr ByteTable kZeros = [] {
  ByteTable table = {};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t r = b;
    for (int i = 0; i < 8; ++i) r = times_x(r);
    table[0][b] = r;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const uint32_t r = table[k - 1][b];
      table[k][b] = (r >> 8) ^ table[0][r & 0xff];
    }
  }
  return table;
}();

uint64_t load64(const std::byte* from) {
  uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  if constexpr (std::endian::native == std::endian::big) word = __builtin_bswap64(word);
  return word;
}

void copy(std::byte* to, const std::byte* data, std::size_t nbytes) {
  if (to != nullptr) std::memcpy(to, data, nbytes);
}

uint32_t update_portable(uint32_t state, std::byte* to, const std::byte* data, std::size_t nbytes) {
  copy(to, data, nbytes);
  for (; nbytes >= 8; nbytes -= 8, data += 8) {
    const uint64_t word = load64(data) ^ state;
    state = 0;
    for (std::size_t k = 0; k < 8; ++k) state ^= kZeros[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; nbytes > 0; --nbytes, ++data) {
    state = (state >> 8) ^ kZeros[0][(state ^ std::to_integer<uint32_t>(*data)) & 0xff];
  }
  return state;
}

#if defined(PC_CRC_INSTRUCTION)

// ---- one instruction per 8 bytes

constexpr std::size_t kCacheLine = 64;

#if defined(__x86_64__)
PC_CRC_INSTRUCTION inline uint32_t step8(uint32_t state, uint64_t word) {
  return static_cast<uint32_t>(_mm_crc32_u64(state, word));
}
PC_CRC_INSTRUCTION inline uint32_t step1(uint32_t state, std::byte byte) {
  return _mm_crc32_u8(state, std::to_integer<uint8_t>(byte));
}
#else
PC_CRC_INSTRUCTION inline uint32_t step8(uint32_t state, uint64_t word) { return __crc32cd(state, word); }
PC_CRC_INSTRUCTION inline uint32_t step1(uint32_t state, std::byte byte) {
  return __crc32cb(state, std::to_integer<uint8_t>(byte));
}
#endif

// A table that moves a register past `nbytes` zero bytes with one look-up per byte of the register.
// This is possible because the division is linear.
using ShiftTable = std::array<std::array<uint32_t, 256>, 4>;
constexpr ShiftTable shift_table(unsigned nbytes) {
  ShiftTable table = {};
  const uint32_t factor = power_of_x(8 * nbytes);
  for (std::size_t k = 0; k < 4; ++k) {
    for (uint32_t bit = 0; bit < 8; ++bit) table[k][1u << bit] = product(1u << (8 * k + bit), factor);
    for (std::size_t b = 1; b < 256; ++b) table[k][b] = table[k][b & (b - 1)] ^ table[k][b & (0 - b)];
  }
  return table;
}
constexpr uint32_t shifted(const ShiftTable& table, uint32_t state) {
  return table[0][state & 0xff] ^ table[1][(state >> 8) & 0xff] ^ table[2][(state >> 16) & 0xff] ^
         table[3][state >> 24];
}

// Processes three consecutive parts of kPart bytes at once, because the instruction takes three
// cycles but one can start every cycle. The jumps between three streams defeat the hardware
// prefetcher, so the next parts are prefetched explicitly, which doubles the speed from L3.
template <std::size_t kPart>
PC_CRC_INSTRUCTION uint32_t update_three(uint32_t state, const std::byte* data) {
  static constexpr ShiftTable kPastOne = shift_table(kPart), kPastTwo = shift_table(2 * kPart);
  static_assert(kPart % kCacheLine == 0);
  uint32_t second = 0, third = 0;
  for (const std::byte* const end = data + kPart; data != end; data += kCacheLine) {
    for (std::size_t p = 0; p < 3; ++p) __builtin_prefetch(data + (3 + p) * kPart);
    for (std::size_t i = 0; i < kCacheLine; i += 8) {
      state = step8(state, load64(data + i));
      second = step8(second, load64(data + kPart + i));
      third = step8(third, load64(data + 2 * kPart + i));
    }
  }
  return shifted(kPastTwo, state) ^ shifted(kPastOne, second) ^ third;
}

PC_CRC_INSTRUCTION uint32_t update_instruction(uint32_t state, std::byte* to, const std::byte* data,
                                               std::size_t nbytes) {
  constexpr std::size_t kLong = 1344,
                        kShort = 128;  // three long parts and their copy fit into the first-level cache
  while (nbytes >= 3 * kLong) {        // copies afterwards: the data are still in the cache
    state = update_three<kLong>(state, data);
    copy(to, data, 3 * kLong);
    if (to != nullptr) to += 3 * kLong;
    data += 3 * kLong;
    nbytes -= 3 * kLong;
  }
  copy(to, data, nbytes);
  for (; nbytes >= 3 * kShort; nbytes -= 3 * kShort, data += 3 * kShort)
    state = update_three<kShort>(state, data);
  for (; nbytes >= 8; nbytes -= 8, data += 8) state = step8(state, load64(data));
  for (; nbytes > 0; --nbytes, ++data) state = step1(state, *data);
  return state;
}
#endif

#if defined(PC_CRC_FOLDING)

// ---- folding by carry-less multiplication

// A lane of 16 bytes represents L = low * x^64 + high (the first byte has the highest powers). L
// moved past n bits is congruent to low * x^(n+64) + high * x^n. The carry-less product of two
// reflected operands has one factor x too many, so the folding factor is x^(bits-1). It has degree
// < 32 and is in the high half of its 64-bit operand.
constexpr long long folding_factor(unsigned bits) {
  const uint64_t factor = uint64_t{power_of_x(bits - 1)} << 32;
  return static_cast<long long>(factor);
}

// ---- both at once: the vector unit folds one part of a block, the instruction reads the others

struct Block {
  static constexpr std::size_t kRounds = 16, kVectors = 4,
                               kWords = 5;  // per round: vectors folded, words read of each part
  static constexpr std::size_t kFolded = kRounds * kVectors * 32, kPart = kRounds * kWords * 8;
  static constexpr std::size_t kBytes = kFolded + 3 * kPart;
};
struct BlockSums {
  __m256i folded[Block::kVectors] = {};
  uint64_t part[3] = {};
};

// Processes round `i` of the block at `data`. Multiplies the sums so far by `factors`, and adds
// `entering` to the first bytes.
PC_CRC_BOTH inline __attribute__((always_inline)) void round_of_block(BlockSums& sums, const std::byte* data,
                                                                      std::size_t i, __m256i factors,
                                                                      uint32_t entering) {
  for (std::size_t line = 0; line < Block::kBytes / Block::kRounds; line += kCacheLine) {
    _mm_prefetch(data + Block::kBytes + i * (Block::kBytes / Block::kRounds) + line, _MM_HINT_T0);
  }
  const std::byte* const vectors = data + i * Block::kVectors * 32;
  const std::byte* const words = data + Block::kFolded + i * Block::kWords * 8;
#pragma GCC unroll 8
  for (std::size_t v = 0; v < Block::kVectors; ++v) {
    const __m256i low = _mm256_clmulepi64_epi128(sums.folded[v], factors, 0x00);
    const __m256i high = _mm256_clmulepi64_epi128(sums.folded[v], factors, 0x11);
    const __m256i read = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(vectors + 32 * v));
    sums.folded[v] = _mm256_xor_si256(_mm256_xor_si256(low, high), read);
  }
  sums.folded[0] = _mm256_xor_si256(sums.folded[0],
                                    _mm256_zextsi128_si256(_mm_cvtsi32_si128(std::bit_cast<int>(entering))));
#pragma GCC unroll 8
  for (std::size_t w = 0; w < Block::kWords; ++w) {
#pragma GCC unroll 3
    for (std::size_t p = 0; p < 3; ++p)
      sums.part[p] = _mm_crc32_u64(sums.part[p], load64(words + p * Block::kPart + 8 * w));
  }
}

// Moves a register past n bytes. `factor` is x^(8n-33), because the CRC instruction itself
// multiplies by x^32.
PC_CRC_BOTH inline uint32_t moved(uint32_t state, uint32_t factor) {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(std::bit_cast<int>(state)),
                                               _mm_cvtsi32_si128(std::bit_cast<int>(factor)), 0);
  return static_cast<uint32_t>(_mm_crc32_u64(0, static_cast<uint64_t>(_mm_cvtsi128_si64(product))));
}

template <unsigned bits>
PC_CRC_BOTH inline __m256i folding_factors() {
  constexpr long long kOfHigh = folding_factor(bits), kOfLow = folding_factor(bits + 64);
  return _mm256_set_epi64x(kOfHigh, kOfLow, kOfHigh, kOfLow);
}

// `nbytes` is a positive multiple of Block::kBytes. Between two blocks, the folded sums are moved
// past the three other parts. The remainder of these parts becomes `state`, which is added at the
// start of the next block.
PC_CRC_BOTH uint32_t update_blocks(uint32_t state, const std::byte* data, std::size_t nbytes) {
  constexpr unsigned kRoundBits = 8 * 32 * Block::kVectors, kPartBits = 8 * Block::kPart;
  constexpr uint32_t kPastOne = power_of_x(kPartBits - 33), kPastTwo = power_of_x(2 * kPartBits - 33),
                     kPastThree = power_of_x(3 * kPartBits - 33);
  const __m256i within = folding_factors<kRoundBits>(),
                across = folding_factors<kRoundBits + 3 * kPartBits>();
  BlockSums sums;
  for (const std::byte* const end = data + nbytes; data != end; data += Block::kBytes) {
    sums.part[0] = sums.part[1] = sums.part[2] = 0;
    round_of_block(sums, data, 0, across, state);
    for (std::size_t i = 1; i < Block::kRounds; ++i) round_of_block(sums, data, i, within, 0);
    state = moved(static_cast<uint32_t>(sums.part[0]), kPastTwo) ^
            moved(static_cast<uint32_t>(sums.part[1]), kPastOne) ^ static_cast<uint32_t>(sums.part[2]);
  }
  // The sums, taken as bytes, leave the same remainder as all folded data.
  return moved(update_instruction(0, nullptr, reinterpret_cast<const std::byte*>(sums.folded),
                                  sizeof sums.folded),
               kPastThree) ^
         state;
}

PC_CRC_BOTH uint32_t update_both(uint32_t state, std::byte* to, const std::byte* data, std::size_t nbytes) {
  const std::size_t in_blocks = nbytes - nbytes % Block::kBytes;
  if (in_blocks == 0) return update_instruction(state, to, data, nbytes);
  state = update_blocks(state, data, in_blocks);
  copy(to, data, in_blocks);
  return update_instruction(state, to != nullptr ? to + in_blocks : nullptr, data + in_blocks,
                            nbytes - in_blocks);
}

// ---- folding alone, 64 bytes per register

template <bool kCopies>
PC_CRC_FOLDING inline __m512i next_register(std::byte*& to, const std::byte*& data) {
  const __m512i piece = _mm512_loadu_si512(data);
  data += sizeof piece;
  if constexpr (kCopies) {
    _mm512_storeu_si512(to, piece);
    to += sizeof piece;
  }
  return piece;
}

constexpr std::size_t kRegisters = 8, kStride = 64 * kRegisters;

// `nbytes` is a multiple of kStride, at least kStride.
template <bool kCopies>
PC_CRC_FOLDING uint32_t fold(uint32_t state, std::byte* to, const std::byte* data, std::size_t nbytes) {
  constexpr long long kOfHigh = folding_factor(8 * kStride), kOfLow = folding_factor(8 * kStride + 64);
  const __m512i factors = _mm512_set4_epi64(kOfHigh, kOfLow, kOfHigh, kOfLow);
  __m512i sums[kRegisters];
  for (__m512i& sum : sums) sum = next_register<kCopies>(to, data);
  sums[0] = _mm512_xor_si512(sums[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(std::bit_cast<int>(state))));
  for (std::size_t done = kStride; done < nbytes; done += kStride) {
    for (__m512i& sum : sums) {
      const __m512i low = _mm512_clmulepi64_epi128(sum, factors, 0x00);
      const __m512i high = _mm512_clmulepi64_epi128(sum, factors, 0x11);
      sum = _mm512_ternarylogic_epi64(low, high, next_register<kCopies>(to, data),
                                      0x96);  // exclusive or of three
    }
  }
  // The sums, taken as bytes, leave the same remainder as all data read so far.
  alignas(64) std::array<std::byte, kStride> rest;
  for (std::size_t i = 0; i < kRegisters; ++i) _mm512_store_si512(rest.data() + 64 * i, sums[i]);
  return update_instruction(0, nullptr, rest.data(), rest.size());
}

uint32_t update_folding(uint32_t state, std::byte* to, const std::byte* data, std::size_t nbytes) {
  // Aligns `data` to a cache line first: loads that straddle cache lines run at half the speed from
  // memory.
  if (to == nullptr && nbytes >= 8 * kStride) {
    const std::size_t before = -reinterpret_cast<uintptr_t>(data) % kCacheLine;
    state = update_instruction(state, nullptr, data, before);
    data += before;
    nbytes -= before;
  }
  const std::size_t folded = nbytes >= 4 * kStride ? nbytes - nbytes % kStride : 0;
  if (folded > 0) {
    state = to != nullptr ? fold<true>(state, to, data, folded) : fold<false>(state, to, data, folded);
    if (to != nullptr) to += folded;
  }
  return update_instruction(state, to, data + folded, nbytes - folded);
}
#endif

std::vector<Crc32cTarget> find_targets() {
  std::vector<Crc32cTarget> found = {{"portable", &update_portable}};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) {
    found.push_back({"SSE4.2", &update_instruction});
    const bool folds = __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("pclmul");
    if (folds && __builtin_cpu_supports("avx2")) found.push_back({"AVX2 VPCLMULQDQ", &update_both});
    if (folds && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl")) {
      found.push_back({"AVX-512 VPCLMULQDQ", &update_folding});
    }
  }
#elif defined(__aarch64__)
  if ((getauxval(AT_HWCAP) & HWCAP_CRC32) != 0) found.push_back({"ARMv8 CRC", &update_instruction});
#endif
  return found;
}

#undef PC_CRC_FEATURES
#undef PC_CRC_INSTRUCTION
#undef PC_CRC_BOTH
#undef PC_CRC_FOLDING

}  // namespace

std::span<const Crc32cTarget> crc32c_targets() {
  static const std::vector<Crc32cTarget> kFound = find_targets();
  return kFound;
}

uint32_t crc32c(std::span<const std::byte> data, uint32_t crc) { return crc32c_copy(nullptr, data, crc); }
uint32_t crc32c_copy(std::byte* to, std::span<const std::byte> data, uint32_t crc) {
  static const Crc32cUpdate kBest = crc32c_targets().back().update;
  return ~kBest(~crc, to, data.data(), data.size());
}
uint32_t crc32c_portable(std::span<const std::byte> data, uint32_t crc) {
  return ~update_portable(~crc, nullptr, data.data(), data.size());
}

}  // namespace pc

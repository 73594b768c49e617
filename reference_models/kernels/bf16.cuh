// Eight bf16 numbers as one 16-byte vector: the unit in which every kernel here loads and stores. No CUDA headers are
// needed, so NVRTC compiles these files on a machine that has none.
#pragma once

using bf16 = unsigned short;  // the upper half of a float
using i64 = long long;

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

struct alignas(16) Bf16x8 {
    unsigned pairs[4];
};

__device__ __forceinline__ Bf16x8 load8(const bf16* from) { return *reinterpret_cast<const Bf16x8*>(from); }

__device__ __forceinline__ void store8(bf16* to, const Bf16x8& vector) { *reinterpret_cast<Bf16x8*>(to) = vector; }

__device__ __forceinline__ void unpack(const Bf16x8& vector, float (&numbers)[8]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        numbers[2 * i] = __uint_as_float(vector.pairs[i] << 16);
        numbers[2 * i + 1] = __uint_as_float(vector.pairs[i] & 0xffff0000u);
    }
}

// Rounds to nearest even, two numbers an instruction (sm_80 and later).
__device__ __forceinline__ Bf16x8 pack(const float (&numbers)[8]) {
    Bf16x8 vector;
#pragma unroll
    for (int i = 0; i < 4; ++i)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(vector.pairs[i]) : "f"(numbers[2 * i + 1]), "f"(numbers[2 * i]));
    return vector;
}

// out[chunk] = sum over the chunk's 32-bit words of word * weight, modulo 2^64; bytes that a short chunk lacks are zeros.
//
// One block a chunk. A thread reads 16 bytes a pass and weighs its words by what pass and place are, and their sum once
// more by what thread it is: the weight of a word is the product of the two. `proof/fingerprints.py` does the same.
// What the launch leaves open is the order of the sum, which does not matter to integers.
//
// chunks (n, 2) int64: address, bytes (1 to 65536; any address). out (n,) int64.
using i64 = long long;
using u64 = unsigned long long;

constexpr int kThreads = 1024;
constexpr int kPasses = 4;
constexpr int kVector = 16;
constexpr i64 kChunk = kThreads * kPasses * kVector;
constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// The first output of SplitMix64 for seed `number`, made odd.
__device__ __forceinline__ constexpr u64 weight(u64 number) {
    u64 mixed = (number + 1) * 0x9E3779B97F4A7C15ull;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ull;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBull;
    return (mixed ^ (mixed >> 31)) | 1;
}

__device__ __forceinline__ u64 weighed(int word, int place) {
    return static_cast<u64>(static_cast<i64>(word)) * weight(kThreads + place);
}

__device__ int4 bytewise(const unsigned char* data, i64 at, i64 size) {
    int words[4] = {0, 0, 0, 0};
    for (int i = 0; i < kVector && at + i < size; ++i) words[i / 4] |= data[at + i] << (8 * (i % 4));
    return make_int4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ u64 sum_over_warp(u64 value) {
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
    return value;
}

extern "C" __global__ void __launch_bounds__(kThreads, 2) fingerprint_chunks(i64* out, const i64* chunks) {
    const unsigned char* data = reinterpret_cast<const unsigned char*>(chunks[2 * blockIdx.x]);
    const i64 size = chunks[2 * blockIdx.x + 1];
    const bool whole = size == kChunk && reinterpret_cast<u64>(data) % kVector == 0;

    int4 vectors[kPasses];  // all on their way before the first is waited for
    if (whole) {
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass)
            vectors[pass] = __ldcs(reinterpret_cast<const int4*>(data) + pass * kThreads + threadIdx.x);
    } else {
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass)
            vectors[pass] = bytewise(data, (pass * kThreads + threadIdx.x) * kVector, size);
    }
    u64 sum = 0;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
        sum += weighed(vectors[pass].x, 4 * pass) + weighed(vectors[pass].y, 4 * pass + 1);
        sum += weighed(vectors[pass].z, 4 * pass + 2) + weighed(vectors[pass].w, 4 * pass + 3);
    }

    __shared__ u64 sums[kThreads / kWarp];
    sum = sum_over_warp(sum * weight(threadIdx.x));
    if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = sum;
    __syncthreads();
    if (threadIdx.x < kWarp) {
        sum = sum_over_warp(sums[threadIdx.x]);
        if (threadIdx.x == 0) out[blockIdx.x] = static_cast<i64>(sum);
    }
}

// out[row] = x[row] / sqrt(mean(x[row]^2) + eps) * weight
//
// One block a row. The row is read twice; the second time it comes from L1. The order of the sum is fixed by the launch
// (vectors of a thread, lanes of a warp, warps of the block), so the result is deterministic.
//
// x (rows, hidden) bf16, rows x_stride apart; weight (hidden,) bf16; out (rows, hidden) bf16, contiguous.
// hidden is a multiple of 8.
#include "bf16.cuh"

__device__ float sum_over_block(float value) {
    __shared__ float sums[kWarp];
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(kAllLanes, value, offset);
    if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = value;
    __syncthreads();
    float total = 0.0f;
    for (int warp = 0; warp < blockDim.x / kWarp; ++warp) total += sums[warp];
    return total;
}

extern "C" __global__ void rms_norm(bf16* out, const bf16* x, const bf16* weight, i64 hidden, i64 x_stride, float eps) {
    const bf16* row = x + blockIdx.x * x_stride;

    float squares = 0.0f;
    for (i64 at = threadIdx.x * 8; at < hidden; at += blockDim.x * 8) {
        float numbers[8];
        unpack(load8(row + at), numbers);
#pragma unroll
        for (int i = 0; i < 8; ++i) squares += numbers[i] * numbers[i];
    }
    const float scale = rsqrtf(sum_over_block(squares) / hidden + eps);

    for (i64 at = threadIdx.x * 8; at < hidden; at += blockDim.x * 8) {
        float numbers[8], weights[8];
        unpack(load8(row + at), numbers);
        unpack(load8(weight + at), weights);
#pragma unroll
        for (int i = 0; i < 8; ++i) numbers[i] *= scale * weights[i];
        store8(out + blockIdx.x * hidden + at, pack(numbers));
    }
}

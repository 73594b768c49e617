"""Kernel names for people: names as torch's kernels, cuBLAS, CUTLASS and Triton have them."""

from __future__ import annotations

import pytest

from cudagraph_doctor.graph.names import readable

ANONYMOUS = "_GLOBAL__N__0cb1f6f7_11_Indexing_cu_89862edb"


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
            "vectorized_elementwise_kernel<CUDAFunctor_add>",
        ),
        (
            "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
            "vectorized_elementwise_kernel<FillFunctor>",
        ),
        (
            "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastIZZZNS0_23direct_copy_kernel_cuda"
            "ERNS_18TensorIteratorBaseEENKUlvE1_clEvENKUlvE5_clEvEUlfE_EEvS4_RKT_EUliE_EEviT1_",
            "elementwise_kernel<direct_copy_kernel_cuda>",
        ),
        (f"_ZN2at6native{len(ANONYMOUS)}{ANONYMOUS}21indexSelectSmallIndexIfljLi2ELin2EEEvT_", "indexSelectSmallIndex"),
        (
            "_ZN2at6native12_GLOBAL__N_119cunn_SoftMaxForwardILi8EfffNS1_22SoftMaxForwardEpilogueEEEvPT2_PKT0_i",
            "cunn_SoftMaxForward",
        ),
        ("_ZN7cutlass7Kernel2I19cutlass_80_tensoropEEvNT_6ParamsE", "Kernel2<cutlass_80_tensorop>"),
        ("_Z12index_kernelPfPKlm", "index_kernel"),
        ("_ZL12index_kernelPfPKlm", "index_kernel"),
        ("nvjet_hsh_64x8_64x16_2x1_v_bz_TNT", "nvjet_hsh_64x8_64x16_2x1_v_bz_TNT"),
        ("triton_poi_fused_add_0", "triton_poi_fused_add_0"),
        ("_Zgarbage", "_Zgarbage"),
        ("", ""),
    ],
)
def test_readable(mangled: str, name: str) -> None:
    assert readable(mangled) == name

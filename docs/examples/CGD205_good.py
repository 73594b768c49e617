"""The weights are waited for when they are loaded."""

import torch
from first_target import Decode


class Loading(Decode):
    def __init__(self, device):
        super().__init__(device)
        loaded = torch.cuda.Event()
        loaded.record()
        loaded.synchronize()


target = Loading

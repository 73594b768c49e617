"""Staging makes the stream wait, before the replay."""

import torch
from first_target import Decode


class Ordered(Decode):
    def __init__(self, device):
        super().__init__(device)
        self.copies = torch.cuda.Stream()

    def update(self, static, fresh):
        self.copies.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.copies):
            super().update(static, fresh)
        torch.cuda.current_stream().wait_stream(self.copies)


target = Ordered

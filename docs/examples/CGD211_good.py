"""The thread is kept still while a capture is open."""

from concurrent.futures import ThreadPoolExecutor

import torch
from first_target import Decode


class Watched(Decode):
    def __init__(self, device):
        super().__init__(device)
        self.watchdog = ThreadPoolExecutor(1, thread_name_prefix="watchdog")
        self.event = torch.cuda.Event()
        self.event.record()

    def poll(self):
        return self.event.query()

    def forward(self, inputs):
        if not torch.cuda.is_current_stream_capturing():
            self.watchdog.submit(self.poll).exception()
        return super().forward(inputs)


target = Watched

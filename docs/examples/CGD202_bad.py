"""Live rows are taken out with a boolean mask: how many there are is only known on the device."""

from first_target import Decode


class LiveRows(Decode):
    def forward(self, inputs):
        live = inputs["slots"] < 64
        self.cache.index_copy_(0, inputs["slots"][live], inputs["x"][live] @ self.weight)
        return inputs["x"] @ self.cache[:64].T


target = LiveRows

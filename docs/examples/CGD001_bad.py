"""The step adds noise that nothing seeds: run twice from the same state, it gives two results."""

import secrets

from first_target import Decode


class Unseeded(Decode):
    def forward(self, inputs):
        return super().forward(inputs) + secrets.randbelow(1000)


target = Unseeded

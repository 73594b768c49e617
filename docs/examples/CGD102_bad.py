"""Staging forgets `x`: every replay computes with the values of the capture, in the right slots."""

from first_target import Decode


class Forgetful(Decode):
    def update(self, static, fresh):
        static["slots"].fill_(64)
        static["slots"][: len(fresh["slots"])].copy_(fresh["slots"])


target = Forgetful

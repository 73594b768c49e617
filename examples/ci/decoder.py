"""A small decoder with CUDA graphs of its own: one layer over a paged KV cache, greedy decoding."""

import torch

BUCKETS = (1, 2, 4, 8)
PAGE = 4


class Decoder(torch.nn.Module):
    def __init__(self, device, pages=33, width=32, vocabulary=64):
        super().__init__()
        weights = torch.Generator().manual_seed(0)
        normal = lambda *shape: torch.randn(*shape, generator=weights).to(device)  # noqa: E731
        self.embedding, self.head = normal(vocabulary, width), normal(width, vocabulary)
        self.query, self.key, self.value = (normal(width, width) / width**0.5 for _ in range(3))
        self.keys = torch.zeros(pages * PAGE, width, device=device)  # the last page is for padding rows
        self.values = torch.zeros(pages * PAGE, width, device=device)

    def forward(self, tokens, lengths, pages):
        hidden = self.embedding[tokens]
        slots = pages.gather(1, (lengths // PAGE)[:, None])[:, 0] * PAGE + lengths % PAGE
        self.keys[slots] = hidden @ self.key
        self.values[slots] = hidden @ self.value
        context = (pages[:, :, None] * PAGE + torch.arange(PAGE, device=pages.device)).flatten(1)
        scores = (self.keys[context] @ (hidden @ self.query)[:, :, None])[:, :, 0]
        beyond = torch.arange(context.shape[1], device=pages.device) > lengths[:, None]
        attention = scores.masked_fill(beyond, -torch.inf).softmax(-1)
        return (hidden + (attention[:, None] @ self.values[context])[:, 0]) @ self.head


class Runner:
    """Captures a graph for each bucket; a step copies its inputs into the buffers that the graphs read, and replays."""

    def __init__(self, decoder, device, blocks=4):
        self.decoder, self.enforce_eager, self.graphs = decoder, False, {}
        self.padding = decoder.keys.shape[0] // PAGE - 1
        self.tokens = torch.zeros(BUCKETS[-1], dtype=torch.long, device=device)
        self.lengths = torch.zeros_like(self.tokens)
        self.pages = torch.full((BUCKETS[-1], blocks), self.padding, device=device)
        self.capture()

    def capture(self):
        for bucket in reversed(BUCKETS):
            inputs = self.tokens[:bucket], self.lengths[:bucket], self.pages[:bucket]
            self.decoder(*inputs)  # warm up
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                logits = self.decoder(*inputs)
            self.graphs[bucket] = graph, logits

    def step(self, tokens, lengths, pages):
        rows = len(tokens)
        if self.enforce_eager or rows > BUCKETS[-1]:
            return self.decoder(tokens, lengths, pages)
        self.tokens[:rows].copy_(tokens)
        self.lengths[:rows].copy_(lengths)
        self.pages[:rows].copy_(pages)
        self.pages[rows:].fill_(self.padding)
        graph, logits = self.graphs[next(bucket for bucket in BUCKETS if bucket >= rows)]
        graph.replay()
        return logits[:rows].clone()

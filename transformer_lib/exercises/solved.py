# Generated from chapters/02_attention.md and 8 more: edit it there and `make export`, or here and `make sync`.

"""My Transformer: the parts that I wrote, chapter by chapter."""

import math

import torch
from torch import nn

# ---- Chapter 2: attention ----------------------------------------------------------------------------------------


def attention(q, k, v, mask=None):
    """For each query, return a weighted mean of the values: a value weighs more if its key fits the query.

    q: (..., n_q, d_k), the queries. k: (..., n_k, d_k), the keys. v: (..., n_k, d_v), the values.
    mask: boolean, True = may attend, broadcast to (..., n_q, n_k); None = every query may attend to every key.
    Returns the output (..., n_q, d_v) and the weights (..., n_q, n_k). A query that may attend to nothing gets zeros.
    """
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # (..., n_q, n_k)
    if mask is None:
        weights = scores.softmax(dim=-1)
    else:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1).masked_fill(~mask, 0.0)
    return weights @ v, weights


# ---- Chapter 3: heads --------------------------------------------------------------------------------------------


def split_heads(x, num_heads):
    """Cut the query (or key, or value) of each token into one part for each head.

    x: (batch, length, d_model). Returns (batch, num_heads, length, d_k), where d_k = d_model / num_heads: the first
    head has the first d_k numbers of each token, the second head the next d_k, and so on.
    """
    return x.unflatten(2, (num_heads, -1)).transpose(1, 2)


def merge_heads(x):
    """Put the parts of the heads side by side again: the opposite of `split_heads`.

    x: (batch, num_heads, length, d_k). Returns (batch, length, num_heads * d_k).
    """
    return x.transpose(1, 2).flatten(2)


class MultiHeadAttention(nn.Module):
    """Attention with several heads: project, split, attend, merge, project.

    d_model: width of the tokens. num_heads: number of heads; it divides d_model.
    """

    def __init__(self, d_model, num_heads):
        """Make four projections from d_model to d_model: for queries, keys, values, and for the merged heads."""
        super().__init__()
        self.num_heads = num_heads
        self.query_projection = nn.Linear(d_model, d_model)
        self.key_projection = nn.Linear(d_model, d_model)
        self.value_projection = nn.Linear(d_model, d_model)
        self.output_projection = nn.Linear(d_model, d_model)

    def forward(self, query, key, value, mask=None):
        """Let each token of `query` read from the tokens of `key` and `value`.

        query: (batch, n_q, d_model). key and value: (batch, n_k, d_model).
        mask: boolean, True = may attend, broadcast to (batch, num_heads, n_q, n_k); or None.
        Returns (batch, n_q, d_model).
        """
        q = split_heads(self.query_projection(query), self.num_heads)  # (batch, num_heads, n_q, d_k)
        k = split_heads(self.key_projection(key), self.num_heads)  # (batch, num_heads, n_k, d_k)
        v = split_heads(self.value_projection(value), self.num_heads)
        output, _ = attention(q, k, v, mask)
        return self.output_projection(merge_heads(output))


# ---- Chapter 4: positions ----------------------------------------------------------------------------------------


def sinusoidal_table(length, d_model):
    """Return a table with one row of sines and cosines for each position.

    Returns (length, d_model), where d_model is even: channel 2i of position p is sin(p / 10000^(2i / d_model)),
    channel 2i + 1 is the cosine of the same angle. Positions count from 0.
    """
    position = torch.arange(length)[:, None]  # (length, 1)
    speed = 10000.0 ** (-torch.arange(0, d_model, 2) / d_model)  # (d_model / 2,)
    table = torch.empty(length, d_model)
    table[:, 0::2] = torch.sin(position * speed)
    table[:, 1::2] = torch.cos(position * speed)
    return table


# ---- Chapter 5: masks --------------------------------------------------------------------------------------------


def padding_mask(tokens, pad_id):
    """Let every query attend to the real tokens only.

    tokens: (batch, length), token ids. Returns (batch, 1, 1, length), boolean, True where a token is not `pad_id`.
    """
    return (tokens != pad_id)[:, None, None, :]


def causal_mask(length):
    """Let position i attend to itself and to the positions before it.

    Returns (1, 1, length, length), boolean: row = query, column = key.
    """
    return torch.ones(1, 1, length, length, dtype=torch.bool).tril()


# ---- Chapter 6: layers -------------------------------------------------------------------------------------------


class LayerNorm(nn.Module):
    """Bring each token's vector to mean 0 and variance 1, then multiply by learned factors and add learned offsets."""

    def __init__(self, d_model):
        """Make what is learned: d_model factors that begin as 1, and d_model offsets that begin as 0."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        """x: (batch, length, d_model), each token by itself. Returns the same shape. Add 1e-5 to the variance."""
        mean = x.mean(dim=-1, keepdim=True)  # (batch, length, 1)
        variance = x.var(dim=-1, keepdim=True, unbiased=False)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.weight + self.bias


class FeedForward(nn.Module):
    """Two linear maps with a ReLU between them, for each token by itself."""

    def __init__(self, d_model, d_ff):
        """Make a linear map from d_model to d_ff, and one from d_ff to d_model."""
        super().__init__()
        self.linear1 = nn.Linear(d_model, d_ff)
        self.linear2 = nn.Linear(d_ff, d_model)

    def forward(self, x):
        """x: (batch, length, d_model). Returns the same shape."""
        return self.linear2(torch.relu(self.linear1(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then a feed-forward network; each is added to what came in."""

    def __init__(self, d_model, num_heads, d_ff, dropout=0.1):
        """Make the two sub-layers, a norm for each, and one dropout, for the output of a sub-layer."""
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, num_heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2 = LayerNorm(d_model), LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        """Pre-norm: a norm stands before each sub-layer.

        x: (batch, n, d_model). mask: as in `MultiHeadAttention`. Returns the shape of x.
        """
        a = self.norm1(x)
        z = x + self.dropout(self.self_attention(a, a, a, mask))
        return z + self.dropout(self.feed_forward(self.norm2(z)))


class DecoderLayer(nn.Module):
    """Self-attention, attention to the memory, a feed-forward network; each is added to what came in."""

    def __init__(self, d_model, num_heads, d_ff, dropout=0.1):
        """Make the three sub-layers, a norm for each, and one dropout, for the output of a sub-layer."""
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, num_heads)
        self.cross_attention = MultiHeadAttention(d_model, num_heads)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm1, self.norm2, self.norm3 = LayerNorm(d_model), LayerNorm(d_model), LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory, mask=None, memory_mask=None):
        """x: (batch, m, d_model), the target. memory: (batch, n, d_model), the encoder's output.

        mask is for the self-attention, memory_mask for the attention to the memory. Returns the shape of x.
        """
        a = self.norm1(x)
        z1 = x + self.dropout(self.self_attention(a, a, a, mask))
        z2 = z1 + self.dropout(self.cross_attention(self.norm2(z1), memory, memory, memory_mask))
        return z2 + self.dropout(self.feed_forward(self.norm3(z2)))


# ---- Chapter 7: the model ----------------------------------------------------------------------------------------


class Transformer(nn.Module):
    """The encoder-decoder Transformer: token ids go in, logits of each next target token come out."""

    def __init__(
        self,
        source_vocab_size,
        target_vocab_size,
        pad_id,
        d_model=128,
        num_heads=4,
        d_ff=256,
        num_layers=4,
        dropout=0.1,
    ):
        """Make two embeddings, `num_layers` layers of each kind, and the map from d_model to the target vocabulary.

        With pre-norm layers each stack ends with one more norm. The numbers in the embeddings begin with mean 0 and
        standard deviation 1/sqrt(d_model).
        """
        super().__init__()
        self.pad_id, self.d_model = pad_id, d_model
        self.source_embedding = nn.Embedding(source_vocab_size, d_model)
        self.target_embedding = nn.Embedding(target_vocab_size, d_model)
        self.encoder_layers = nn.ModuleList(EncoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers))
        self.decoder_layers = nn.ModuleList(DecoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers))
        self.encoder_norm, self.decoder_norm = LayerNorm(d_model), LayerNorm(d_model)
        self.output = nn.Linear(d_model, target_vocab_size)
        self.dropout = nn.Dropout(dropout)
        for embedding in (self.source_embedding, self.target_embedding):
            nn.init.normal_(embedding.weight, std=d_model**-0.5)

    def forward(self, source, target):
        """source: (batch, n), target: (batch, m), token ids; shorter sentences are filled up with pad_id on the right.

        Position i of the result predicts the token after target token i. Returns logits (batch, m, target_vocab_size).
        """
        source_mask = padding_mask(source, self.pad_id)  # (batch, 1, 1, n)
        target_mask = padding_mask(target, self.pad_id) & causal_mask(target.size(1)).to(target.device)
        x = self.embed(source, self.source_embedding)  # (batch, n, d_model)
        for layer in self.encoder_layers:
            x = layer(x, source_mask)
        memory = self.encoder_norm(x)
        y = self.embed(target, self.target_embedding)  # (batch, m, d_model)
        for layer in self.decoder_layers:
            y = layer(y, memory, target_mask, source_mask)
        return self.output(self.decoder_norm(y))

    def embed(self, tokens, embedding):
        """tokens: (batch, length); embedding: an nn.Embedding. Returns dropout(rows * sqrt(d_model) + positions)."""
        x = embedding(tokens) * math.sqrt(self.d_model)
        return self.dropout(x + sinusoidal_table(tokens.size(1), self.d_model).to(x))


# ---- Given: what `check` and `train` call ------------------------------------------------------------------------


def build(source_vocab_size, target_vocab_size, pad_id):
    """Make the model that is checked and trained. Choose its sizes here."""
    return Transformer(source_vocab_size, target_vocab_size, pad_id)


# ---- Chapter 8: data ---------------------------------------------------------------------------------------------


def make_batch(pairs, pad_id):
    """Put sentences of different lengths into two rectangles of numbers.

    pairs: a list of (source, target); each side is a list of token ids.
    Returns source (batch, n) and target (batch, m), int64, filled up with pad_id on the right; n and m are the lengths
    of the longest source and the longest target.
    """
    batch = []
    for sentences in zip(*pairs):
        longest = max(len(sentence) for sentence in sentences)
        batch.append(torch.tensor([list(sentence) + [pad_id] * (longest - len(sentence)) for sentence in sentences]))
    return tuple(batch)


def batches_by_length(pairs, budget):
    """Divide pairs among batches of similar lengths; a budget of cells decides how many pairs a batch has.

    pairs: as in `make_batch`; no side is longer than the budget. Returns a list of lists of pairs, from short to long
    by the longer side. A batch has as many pairs as fit: their number times the longest side is at most the budget.
    """
    batches = []
    for pair in sorted(pairs, key=lambda pair: max(len(pair[0]), len(pair[1]))):
        longest = max(len(pair[0]), len(pair[1]))
        if not batches or (len(batches[-1]) + 1) * longest > budget:
            batches.append([])
        batches[-1].append(pair)
    return batches


# ---- Chapter 9: training -----------------------------------------------------------------------------------------


def label_smoothed_loss(logits, labels, pad_id, smoothing=0.1):
    """The mean cross-entropy of the real labels, in nats, with part of each label's probability spread over all tokens.

    logits: (batch, m, V). labels: (batch, m), token ids, already shifted; those equal to pad_id do not count.
    The label gets probability 1 - smoothing, and each of the V tokens, the label included, gets smoothing / V on top.
    """
    log_probs = logits.log_softmax(dim=-1)  # (batch, m, V)
    right = log_probs.gather(-1, labels[..., None])[..., 0]  # (batch, m)
    losses = -(1 - smoothing) * right - smoothing * log_probs.mean(dim=-1)
    return losses[labels != pad_id].mean()


def learning_rate(step, peak, warmup):
    """The learning rate of a step, counted from 1.

    It rises in a straight line to `peak` at step `warmup`, then falls as 1/sqrt(step).
    """
    return peak * min(step / warmup, math.sqrt(warmup / step))


def training_step(model, optimizer, source, target, pad_id, rate):
    """Change the weights once, and return the loss before the change, as a number.

    source: (batch, n). target: (batch, m + 1), which begins with <bos>: the model reads all but the last token of
    each target, and predicts all but the first. rate: the learning rate of this step. The loss is that of
    `label_smoothed_loss` with its default smoothing; nothing is clipped, and the caller sets the training mode.
    """
    for group in optimizer.param_groups:
        group["lr"] = rate
    loss = label_smoothed_loss(model(source, target[:, :-1]), target[:, 1:], pad_id)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


# ---- Chapter 10: search ------------------------------------------------------------------------------------------


@torch.no_grad()
def greedy(model, source, bos_id, eos_id, max_length):
    """Translate one sentence: begin with bos_id, and append the most probable token until that is eos_id.

    source: (1, n). Stops after max_length tokens; eos_id counts as one, bos_id does not. Returns the token ids without
    bos_id and eos_id. Uses nothing of the model but model(source, tokens), which is in evaluation mode.
    """
    tokens = [bos_id]
    while len(tokens) <= max_length:
        logits = model(source, torch.tensor([tokens], device=source.device))[0, -1]  # (V,)
        token = logits.argmax().item()
        if token == eos_id:
            break
        tokens.append(token)
    return tokens[1:]


@torch.no_grad()
def beam_search(model, source, bos_id, eos_id, max_length, beam_size=5, length_penalty=1.0):
    """Translate one sentence by keeping its `beam_size` best hypotheses.

    source: (1, n). A finished hypothesis keeps its slot until the end. Its score is its log-probability divided by
    length**length_penalty, where the length counts eos_id. The search ends when no slot is left, or after max_length
    tokens. If nothing has finished by then, the unfinished hypotheses are scored instead, with length max_length.
    Stopping earlier may be left out: it saves time only.
    Returns the tokens with the best score, without bos_id and eos_id.
    """
    live, finished = [(0.0, [])], []
    for length in range(1, max_length + 1):
        inputs = torch.tensor([[bos_id, *tokens] for _, tokens in live], device=source.device)  # (live, length)
        log_probs = model(source.expand(len(live), -1), inputs)[:, -1].double().log_softmax(dim=-1)  # (live, V)
        best, choices = log_probs.topk(min(beam_size, log_probs.size(1)), dim=-1)  # (live, beam_size)
        candidates = [
            (total + log_prob, [*tokens, token])
            for (total, tokens), row, chosen in zip(live, best.tolist(), choices.tolist())
            for log_prob, token in zip(row, chosen)
        ]
        candidates.sort(key=lambda candidate: -candidate[0])
        live = []
        for total, tokens in candidates[: beam_size - len(finished)]:
            if tokens[-1] == eos_id:
                finished.append((total / length**length_penalty, tokens[:-1]))
            else:
                live.append((total, tokens))
        if not live:
            break
    if not finished:
        finished = [(total / max_length**length_penalty, tokens) for total, tokens in live]
    return max(finished, key=lambda hypothesis: hypothesis[0])[1]

"""How many bytes a model takes in llama.cpp: weights, key-value cache, work buffers.

Pure. Formulas follow llama.cpp's llama-kv-cache*.cpp, llama-memory-recurrent.cpp and
llama-hparams.cpp as pinned; the work buffer is fitted to what it reserves (docs/inference.md
has the table). What is not known is counted too high rather than too low.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from stoker.events.model_facts import ModelFacts

KV_TYPES: Final = ("f16", "q8_0", "q4_0")
_BLOCK: Final = 32
_BLOCK_BYTES: Final = {"f16": 64, "q8_0": 34, "q4_0": 18}
_PAD: Final = 256  # llama.cpp rounds contexts up to it
_UBATCH: Final = 512  # as the runner's loader has it
_SCORED: Final = 32  # rows of logits that the runner asks for at least
_WORD_BYTES: Final = 300  # of a vocabulary, measured: 265..290 with merges
_FIXED: Final = 24 << 20  # graphs, threads, pieces of text, the allocator's holes
# Every so many layers one sees everything; the others the window (load_swa_pattern).
_PATTERNS: Final = {
    "exaone-moe": 4, "gemma3n": 5, "olmo2": 4, "plamo3": 8, "llama4": 4, "gpt-oss": 2,
    "cohere2moe": 4, "afmoe": 4, "cohere2": 4, "gemma3": 6, "gemma2": 2, "smallthinker": 4,
    "mellum": 4,
}  # fmt: skip
_LISTED: Final = frozenset({"gemma4", "gpt-oss", "mimo2", "step35", "exaone-moe"})
_DENSE_FIRST: Final = frozenset({"cohere2moe", "smallthinker"})
_DEFAULT_WINDOWS: Final = {"gemma2": 4096, "exaone-moe": 128}
_FIXED_WINDOWS: Final = {"llama4": 8192, "smallthinker": 4096}  # whatever the file says
_RECURRENT: Final = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
_INTERVALS: Final = {"qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "qwen4exp": 4, "minimax-01": 8}
_BOTH: Final = frozenset({"falcon-h1"})  # each layer has attention and a state


@dataclass(frozen=True, slots=True)
class Shape:
    """A context as the runner would make it. ``sequences`` includes the one for scoring."""

    cells: int  # tokens of all sequences together
    sequences: int
    kv_type: str = "f16"
    batch_tokens: int = 512
    flash_attention: bool = True
    mmap: bool = True
    saved_tokens: int = 0  # of the longest sequence that is saved to disk; 0 = none is
    saved_bytes: int = 0  # what may be saved at most
    swa_full: bool = True  # llama.cpp's default: without it no sequence could be cut back


@dataclass(frozen=True, slots=True)
class Parts:
    """Bytes. ``mapped`` is the file's pages, which the kernel may drop and read again; all
    others are the process's own."""

    mapped: int
    weights: int
    kv: int
    compute: int
    overhead: int
    saving: int = 0  # while a conversation is saved or restored

    @property
    def total(self) -> int:
        return self.mapped + self.anonymous

    @property
    def anonymous(self) -> int:
        return self.weights + self.kv + self.compute + self.overhead + self.saving


def parts(facts: ModelFacts, shape: Shape) -> Parts:
    repacked = facts.repack_bytes.get(facts.repack_here, 0)
    weights = weight_bytes(facts)
    if shape.mmap:  # what is rearranged is read from the file once and not needed again
        mapped, own = weights - repacked, repacked
    else:
        mapped, own = 0, weights
    return Parts(
        mapped=mapped,
        weights=own,
        kv=kv_bytes(facts, shape),
        compute=compute_bytes(facts, shape),
        overhead=overhead(facts),
        saving=saving_bytes(facts, shape),
    )


def least_bytes(file_bytes: int) -> int:
    """What any plan takes of a model whose facts nobody has read yet. The whole file counts as
    weights: what a load makes of its vocabulary is larger than what the file holds of it.
    """
    return file_bytes + _FIXED


def weight_bytes(facts: ModelFacts) -> int:
    """Of the tensors; of the file where it holds types that have no known size."""
    known = all(facts.bytes_by_type.values()) and facts.weight_bytes
    return facts.weight_bytes if known else facts.file_bytes


def kv_bytes(facts: ModelFacts, shape: Shape) -> int:
    """Filled with zeros at load: resident at once, however little of it is used."""
    full, window, states = layers(facts)
    cells = padded(shape.cells)
    narrow = sum(_row_bytes(facts, layer, shape.kv_type, swa=True) for layer in window)
    wide = sum(_row_bytes(facts, layer, shape.kv_type, swa=False) for layer in full)
    state = len(states) * state_bytes(facts) * shape.sequences
    return wide * cells + narrow * window_cells(facts, shape) + state


def saving_bytes(facts: ModelFacts, shape: Shape) -> int:
    """The copy of one sequence that goes to the disk or comes from there; larger ones do not."""
    if not shape.saved_tokens:
        return 0
    one = replace(shape, cells=shape.saved_tokens, sequences=1)
    return min(kv_bytes(facts, one), shape.saved_bytes)


def window_cells(facts: ModelFacts, shape: Shape) -> int:
    """Of a layer that sees the window only (llama-kv-cache-iswa.cpp)."""
    cells = padded(shape.cells)
    if shape.swa_full:
        return cells
    return padded(min(cells, window_tokens(facts) * shape.sequences + ubatch(shape)))


def layers(facts: ModelFacts) -> tuple[list[int], list[int], list[int]]:
    """Layers that keep everything, those that keep a window, those that keep a state."""
    count = max(0, facts.layers - facts.nextn_layers)
    if facts.architecture in _RECURRENT:
        return [], [], list(range(count))
    full: list[int] = []
    window: list[int] = []
    states: list[int] = []
    for layer in range(count):
        if _is_recurrent(facts, layer):
            states.append(layer)
            if facts.architecture not in _BOTH:
                continue
        if layer >= _with_own_keys(facts) or facts.kv_heads[layer] == 0:
            continue
        (window if _is_sliding(facts, layer) else full).append(layer)
    return full, window, states


def window_tokens(facts: ModelFacts) -> int:
    """Tokens that a sliding layer sees; 0 = all of them."""
    arch = facts.architecture
    return _FIXED_WINDOWS.get(arch, facts.sliding_window or _DEFAULT_WINDOWS.get(arch, 0))


def state_bytes(facts: ModelFacts) -> int:
    """Of one recurrent layer and sequence, in f32: n_embd_r + n_embd_s."""
    if facts.wkv_head_size:
        return 4 * facts.embedding * (facts.token_shift or 2) + (
            4 * facts.embedding * facts.wkv_head_size
        )
    if facts.shortconv:
        return 4 * facts.embedding * (facts.shortconv - 1)
    if facts.kda_head:
        inner = facts.heads * facts.kda_head
        return 4 * (3 * (max(facts.conv_kernel, 4) - 1) * inner + facts.kda_head * inner)
    conv = max(0, facts.conv_kernel - 1) * (
        facts.inner_size + 2 * facts.group_count * facts.state_size
    )
    return 4 * (conv + facts.state_size * facts.inner_size)


def compute_bytes(facts: ModelFacts, shape: Shape) -> int:
    """The scheduler's buffer, the logits, and the CPU backend's scratch of one product.

    The widest moment of a layer is its feed-forward part or its attention; the mask has a
    row of two bytes a cell for each token of a step (four, and the scores of every head
    beside it, without flash attention).
    """
    tokens = ubatch(shape)
    full, window, states = layers(facts)
    cells = padded(shape.cells) * bool(full) + window_cells(facts, shape) * bool(window)
    rows = max(shape.sequences, _SCORED)
    logits = 4 * min(tokens, rows) * facts.vocabulary
    wide = 4 * tokens * max(_feeding(facts), _state_width(facts) * bool(states))
    attention = 4 * tokens * _attention(facts)
    if shape.flash_attention:
        graph = 2 * tokens * cells + max(wide, attention, logits)
    else:
        scores = 4 * facts.heads * tokens * padded(shape.cells) * bool(full or window)
        graph = 4 * tokens * cells + max(wide, scores + attention, logits)
    if states:
        graph += state_bytes(facts) * shape.sequences
    query = facts.heads * facts.key_length
    scratch = tokens * max(facts.feed_forward, query, facts.embedding) * 5 // 4
    return graph + scratch + 4 * shape.sequences * facts.vocabulary


def _feeding(facts: ModelFacts) -> int:
    """Values a token of the widest feed-forward part: gate, up, their product, the row."""
    width, used = facts.embedding, facts.experts_used
    routed = 3 * used * facts.expert_feed_forward + used * width
    return max(3 * facts.feed_forward, routed) + 4 * width


def _attention(facts: ModelFacts) -> int:
    """Values a token of the attention: queries twice, keys and values, the row."""
    query, out = facts.heads * facts.key_length, facts.heads * facts.value_length
    row = facts.embedding * 7 // 2
    if facts.key_length_mla:  # as they are, and folded into the latent space
        return query + out + facts.heads * facts.key_length_mla + row
    kv = max(facts.kv_heads, default=0) * (facts.key_length + facts.value_length)
    return 2 * query + kv // 2 + row


def _state_width(facts: ModelFacts) -> int:
    inner = max(facts.inner_size, facts.heads * facts.kda_head, facts.embedding)
    return 6 * inner + facts.embedding + 2 * facts.group_count * facts.state_size


def overhead(facts: ModelFacts) -> int:
    """What a load adds beside all that: mostly the vocabulary."""
    return _FIXED + _WORD_BYTES * facts.vocabulary


def fits_type(facts: ModelFacts, kv_type: str) -> bool:
    """Whether rows of a head fill the blocks of this type (llama.cpp refuses them else)."""
    lengths = (facts.key_length, facts.value_length, facts.key_length_swa, facts.value_length_swa)
    return kv_type == "f16" or all(length % _BLOCK == 0 for length in lengths)


def ubatch(shape: Shape) -> int:
    return min(max(shape.batch_tokens, shape.sequences), _UBATCH, padded(shape.cells))


def padded(cells: int) -> int:
    return -(-cells // _PAD) * _PAD


def _row_bytes(facts: ModelFacts, layer: int, kv_type: str, *, swa: bool) -> int:
    """Of one token in one layer. MLA keeps one latent row and no values."""
    key = facts.key_length_swa if swa else facts.key_length
    value = facts.value_length_swa if swa else facts.value_length
    if facts.key_length_mla and facts.value_length_mla:
        value = 0
    length = facts.kv_heads[layer] * (key + value)
    return -(-length * _BLOCK_BYTES[kv_type] // _BLOCK)


def _with_own_keys(facts: ModelFacts) -> int:
    if facts.architecture == "gemma3n":
        return 20
    return facts.layers - facts.shared_kv_layers


def _is_sliding(facts: ModelFacts, layer: int) -> bool:
    arch = facts.architecture
    if not window_tokens(facts):
        return False
    if facts.sliding_layers and (arch in _PATTERNS or arch in _LISTED):
        return layer < len(facts.sliding_layers) and bool(facts.sliding_layers[layer])
    pattern = _PATTERNS.get(arch, 0)
    if not pattern:
        return False
    pattern = facts.sliding_pattern or pattern
    at = layer % pattern
    return at != 0 if arch in _DENSE_FIRST else at < pattern - 1


def _is_recurrent(facts: ModelFacts, layer: int) -> bool:
    if facts.architecture in _BOTH:
        return True
    if facts.recurrent_layers:
        return layer < len(facts.recurrent_layers) and bool(facts.recurrent_layers[layer])
    interval = _INTERVALS.get(facts.architecture, 0)
    if interval:
        return (layer + 1) % (facts.full_attention_interval or interval) != 0
    has_state = facts.state_size or facts.shortconv or facts.kda_head
    return bool(has_state) and facts.kv_heads[layer] == 0

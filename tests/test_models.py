"""The model classes: published names and shapes, agreement with independent code, caches, damaged files."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from csd.errors import InputError
from csd.models.builtin import ASSETS, LlamaGenSession, choose_threads, load_garden
from csd.models.llamagen import Cache, LlamaGen, LlamaGenConfig, rope_table
from csd.models.vq import VQConfig, VQModel

SMALL = LlamaGenConfig(dim=32, layers=3, heads=2, ffn=48, vocab=50, classes=4, grid=6)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    net = LlamaGen(SMALL).eval()
    net.init_weights()
    torch.nn.init.normal_(net.output.weight, std=0.5)
    return net


def test_published_sizes():
    """LlamaGen-B and -L: parameter counts and the names of the published checkpoints."""
    for dim, layers, heads, ffn, millions in [(768, 12, 12, 2048, 110.9), (1024, 24, 16, 2816, 342.9)]:
        with torch.device("meta"):
            net = LlamaGen(LlamaGenConfig(dim, layers, heads, ffn, 16384, 1000, 24))
        assert sum(p.numel() for p in net.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)
    shapes = {k: tuple(v.shape) for k, v in net.state_dict().items()}
    assert shapes["cls_embedding.embedding_table.weight"] == (1001, 1024)
    assert shapes["layers.0.attention.wqkv.weight"] == (3072, 1024)
    assert shapes["layers.23.feed_forward.w3.weight"] == (2816, 1024)
    rest = {k.split(".", 2)[2] for k in shapes if k.startswith("layers.")}
    assert rest == {"attention.wqkv.weight", "attention.wo.weight", "feed_forward.w1.weight", "feed_forward.w2.weight",
                    "feed_forward.w3.weight", "attention_norm.weight", "ffn_norm.weight"}  # fmt: skip
    assert {k for k in shapes if not k.startswith("layers.")} == {
        "tok_embeddings.weight", "cls_embedding.embedding_table.weight", "norm.weight", "output.weight"}  # fmt: skip


def test_rope_has_rows_columns_and_a_silent_class_token():
    table = rope_table(SMALL)
    assert table.shape == (37, 8, 2) and table[0].abs().max() == 0
    angle = torch.atan2(table[1:, :, 1], table[1:, :, 0]).reshape(6, 6, 8)
    assert torch.allclose(angle[3, 2, 0], torch.tensor(3.0)) and torch.allclose(angle[3, 2, 4], torch.tensor(2.0))


def test_cached_windows_equal_one_pass(net):
    y, codes = torch.tensor([1, 4]), torch.randint(0, 50, (1, 36)).repeat(2, 1)
    with torch.inference_mode():
        full = net(y, codes[:, :35])
        cache, at, rows = Cache(SMALL, 2, torch.float32, torch.device("cpu")), 0, []
        for n in (0, 1, 7, 16, 3, 8):
            rows.append(net.extend(y, codes[:, at : at + n], cache))
            at += n
    assert (torch.cat(rows, 1) - full).abs().max() < 1e-5


@pytest.mark.parametrize("guidance", [1.0, 2.5])
def test_logits_after_any_rollback_equal_a_fresh_pass(net, guidance):
    """Random feeds and rollbacks; after each, the next logits equal those of a session that never saw the rejects."""
    rng = np.random.default_rng(0)
    session, kept = LlamaGenSession(net, 2, guidance), []
    session.forward(np.zeros(0, np.int64))
    for _ in range(30):
        fed = rng.integers(0, 50, rng.integers(1, 6))
        if len(kept) + len(fed) > 34:
            session.rollback(len(kept))
            kept = []
        session.forward(fed)
        drop = int(rng.integers(0, len(fed) + 1))
        session.rollback(drop)
        kept += fed[: len(fed) - drop].tolist()
        probe = rng.integers(0, 50, 2)
        got = session.forward(probe)
        session.rollback(2)
        fresh = LlamaGenSession(net, 2, guidance).forward(np.array([*kept, *probe]))
        assert np.abs(got - fresh[-2:]).max() < 1e-5
        assert session.length == len(kept)


def test_guidance_one_runs_one_row_and_equals_two(net):
    one, two = LlamaGenSession(net, 2, 1.0), LlamaGenSession(net, 2, 1.0 + 1e-9)
    tokens = np.arange(5)
    assert np.abs(one.forward(tokens) - two.forward(tokens)).max() < 1e-4
    assert (one.rows, two.rows, one.forwards, two.forwards) == (1, 2, 1, 1)


def test_rollback_beyond_the_start_is_refused(net):
    session = LlamaGenSession(net, 0, 1.5)
    session.forward(np.arange(3))
    with pytest.raises(ValueError, match="cannot roll back 4 of 3"):
        session.rollback(4)


def test_vq_equals_transformers_janus():
    """Our tokeniser's weights, renamed, load strictly into transformers' JanusVQVAE and decode to the same picture."""
    from transformers.models.janus.configuration_janus import JanusVQVAEConfig
    from transformers.models.janus.modeling_janus import JanusVQVAE

    torch.manual_seed(0)
    cfg = VQConfig(vocab=64, code_dim=8, ch=128, encoder_mult=(1, 2), decoder_mult=(1, 2), res_blocks=1, z_channels=64)
    ours = VQModel(cfg).eval()
    theirs = JanusVQVAE(JanusVQVAEConfig(embed_dim=8, num_embeddings=64, latent_channels=64, base_channels=128,
                                         channel_multiplier=[1, 2], num_res_blocks=1, num_patches=4)).eval()  # fmt: skip

    def rename(key):
        key = key.replace("encoder.conv_blocks", "encoder.down").replace("decoder.conv_blocks", "decoder.up")
        key = key.replace(".res.", ".block.")
        return key.replace("mid.0", "mid.block_1").replace("mid.1", "mid.attn_1").replace("mid.2", "mid.block_2")

    theirs.load_state_dict({rename(k): v for k, v in ours.state_dict().items()}, strict=True)
    codes = torch.randint(0, 64, (1, 4, 4))
    with torch.no_grad():
        a, b = ours.decode(codes), theirs.decode(codes.flatten(1))
    assert (a - b).abs().max() < 1e-5


def test_builtin_pair_fits_together(garden):
    target, draft = garden
    assert (target.vocab, target.grid) == (draft.vocab, draft.grid) == (2048, (16, 16))
    assert draft.transformer.cfg.macs_per_token * 8 <= target.transformer.cfg.macs_per_token
    assert 5e6 < sum(p.numel() for p in target.transformer.parameters()) < 20e6
    picture = target.decode(np.zeros(256, np.int64))
    assert picture.shape == (64, 64, 3) and picture.dtype == np.uint8
    assert target.embeddings().shape == (2048, 8)
    assert np.allclose(np.linalg.norm(target.embeddings(), axis=1), 1, atol=1e-5)


def test_threads_are_measured(garden):
    found = choose_threads(garden[0], most=2)
    assert found in (1, 2) and torch.get_num_threads() == found
    torch.set_num_threads(1)


def test_damaged_weights_are_one_line(tmp_path):
    for name in ("garden.json", "garden.safetensors", "garden-draft.safetensors", "garden-tokenizer.safetensors"):
        shutil.copy(ASSETS / name, tmp_path / name)
    path = tmp_path / "garden.safetensors"
    whole = path.read_bytes()
    for damage, words in [(whole[:1000], "are damaged"), (b"", "are damaged"), (None, "are missing"),
                          ((tmp_path / "garden-draft.safetensors").read_bytes(), "do not fit")]:  # fmt: skip
        path.unlink(missing_ok=True)
        if damage is not None:
            path.write_bytes(damage)
        with pytest.raises(InputError, match=words) as error:
            load_garden(tmp_path)
        assert "\n" not in str(error.value) and str(tmp_path) not in str(error.value)
    (tmp_path / "garden.json").write_text("{")
    with pytest.raises(InputError, match="missing or damaged"):
        load_garden(tmp_path)


def test_assets_are_small_and_described():
    weights = sum(p.stat().st_size for p in Path(ASSETS).glob("*.safetensors"))
    assert weights < 60 * 2**20
    assert len(json.loads((ASSETS / "garden.json").read_text())["labels"]) >= 8


def test_mar_published_sizes():
    """MAR-B/L/H: parameter and tensor counts of the published files."""
    from csd.models.mar import MAR, MARConfig

    for sizes, millions, tensors in [((768, 12, 12, 12, 6, 1024), 207.9, 364), ((1024, 16, 16, 16, 8, 1280), 478.3, 476),
                                     ((1280, 20, 20, 16, 12, 1536), 942.4, 604)]:  # fmt: skip
        with torch.device("meta"):
            net = MAR(MARConfig(*sizes))
        assert sum(p.numel() for p in net.parameters()) / 1e6 == pytest.approx(millions, abs=0.06)
        assert len(net.state_dict()) == tensors


def test_mar_contexts_depend_on_known_tokens_only_and_rows_are_independent():
    from csd.models.mar import MAR, MARConfig

    torch.manual_seed(0)
    net = MAR(MARConfig(32, 2, 2, 4, 2, 48, width=8, grid=4, classes=5, buffer=4)).eval()
    for p in net.parameters():
        torch.nn.init.normal_(p, std=0.2)
    z, y = torch.randn(3, 16, 8), torch.tensor([0, 3, -1])
    known = torch.rand(3, 16) < torch.tensor([[0.2], [0.5], [0.9]])
    with torch.no_grad():
        together = net.contexts(y, z, known)
        alone = torch.cat([net.contexts(y[i : i + 1], z[i : i + 1], known[i : i + 1]) for i in range(3)])
        spoiled = net.contexts(y, torch.where(known[..., None], z, torch.tensor(9.0)), known)
    assert (together - alone).abs().max() < 1e-5
    assert torch.equal(together, spoiled)


def test_diffusion_chain_of_true_noise_returns_the_picture():
    """Fed the true noise, the chain ends at x_0; the last sigma is MAR's 0.0062 to 0.0064."""
    from csd.models.mar import Diffusion

    torch.manual_seed(0)
    d, x0 = Diffusion(100), torch.randn(5, 8, dtype=torch.float64)
    assert d.steps == 100 and d.times[0] == 0 and d.times[-1] == 999
    x = d.noised(x0, torch.full((5,), 999), torch.randn(5, 8, dtype=torch.float64))
    for i in reversed(range(100)):
        eps = (x - d.alpha[i].sqrt() * x0) / (1 - d.alpha[i]).sqrt()
        mean, sigma = d.transition(torch.cat([eps, torch.zeros_like(eps)], -1), x, i)
        x = mean + (sigma * torch.randn_like(x) if i else 0)
    assert (x - x0).abs().max() < 1e-9
    assert 0.0062 < float(sigma[0, 0]) < 0.0064

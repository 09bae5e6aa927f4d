"""Tiny random models of architectures that only transformers has modules for: those that run, and those that cannot."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers as hf

from corelm.api import ResolvedModel

VOCABULARY = 160
LENGTH = 128
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": LENGTH,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MANY = {name: value for name, value in SIZES.items() if name != "num_key_value_heads"}
"""As many KV heads as others, or the configuration cannot say."""
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": LENGTH}
OPT = {name: MANY[name] for name in MANY if name != "intermediate_size"} | {"ffn_dim": 96}
WINDOW = {"sliding_window": 9}
MIXED = WINDOW | {"layer_types": ["sliding_attention", "full_attention"]}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
ROUTED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 48, "first_k_dense_replace": 1}
LATENT = {
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}
"""Keys are wider than values."""
ONE_GROUP = {"n_group": 1, "topk_group": 1, "n_shared_experts": 1}
LONG_ROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 8,
    "long_factor": [2.0] * 8,
    "original_max_position_embeddings": 32,
}
GEMMA_3N = {
    "intermediate_size": [96] * 4,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "sliding_window": 9,
    "num_kv_shared_layers": 2,
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 16,
    "activation_sparsity_pattern": [0.0] * 4,
    "laurel_rank": 8,
    "head_dim": 16,
}
GEMMA_4 = MIXED | {
    "num_key_value_heads": 2,
    "num_global_key_value_heads": 1,
    "attention_k_eq_v": True,
    "head_dim": 16,
    "global_head_dim": 32,
    "vocab_size_per_layer_input": VOCABULARY,
    "hidden_size_per_layer_input": 16,
}
"""Layers differ in their heads."""

Configs = dict[str, Callable[[], hf.PretrainedConfig]]

RUNNING: Configs = {
    "afmoe": lambda: hf.AfmoeConfig(**SIZES, **WINDOW, head_dim=16),
    "apertus": lambda: hf.ApertusConfig(**SIZES),
    "aria": lambda: hf.AriaTextConfig(**SIZES, moe_num_experts=4, moe_topk=2, moe_num_shared_experts=1, head_dim=16),
    "arcee": lambda: hf.ArceeConfig(**SIZES),
    "biogpt": lambda: hf.BioGptConfig(**MANY),
    "bitnet": lambda: hf.BitNetConfig(**SIZES),
    "codegen": lambda: hf.CodeGenConfig(**GPT2, rotary_dim=8),
    "cohere": lambda: hf.CohereConfig(**SIZES, use_qk_norm=True),
    "cohere2": lambda: hf.Cohere2Config(**SIZES, **MIXED),
    "cohere2_moe": lambda: hf.Cohere2MoeConfig(**SIZES, **MIXED, **EXPERTS),
    "ctrl": lambda: hf.CTRLConfig(**GPT2, dff=96),
    "cwm": lambda: hf.CwmConfig(**SIZES, **WINDOW, head_dim=16),
    "deepseek_v2": lambda: hf.DeepseekV2Config(**SIZES | LATENT | ROUTED | ONE_GROUP | {"q_lora_rank": None}),
    "deepseek_v3": lambda: hf.DeepseekV3Config(**SIZES | LATENT, **ROUTED, **ONE_GROUP),
    "diffllama": lambda: hf.DiffLlamaConfig(**SIZES, head_dim=16),
    "dots1": lambda: hf.Dots1Config(**SIZES, **ROUTED, n_shared_experts=1),
    "ernie4_5": lambda: hf.Ernie4_5Config(**SIZES),
    "ernie4_5_moe": lambda: hf.Ernie4_5_MoeConfig(
        **SIZES, moe_num_experts=4, moe_k=2, moe_intermediate_size=48, moe_layer_start_index=0
    ),
    "exaone4": lambda: hf.Exaone4Config(**SIZES, **MIXED),
    "exaone_moe": lambda: hf.ExaoneMoeConfig(
        **SIZES, **MIXED, **EXPERTS, moe_intermediate_size=48, first_k_dense_replace=1
    ),
    "flex_olmo": lambda: hf.FlexOlmoConfig(**SIZES, **EXPERTS),
    "gemma": lambda: hf.GemmaConfig(**SIZES, head_dim=32),
    "gemma2": lambda: hf.Gemma2Config(
        **SIZES, **WINDOW, head_dim=32, query_pre_attn_scalar=24, tie_word_embeddings=False
    ),
    "gemma3": lambda: hf.Gemma3TextConfig(**SIZES, **MIXED, head_dim=32),
    "gemma3n": lambda: hf.Gemma3nTextConfig(**SIZES | GEMMA_3N),
    "gemma4": lambda: hf.Gemma4TextConfig(**SIZES | GEMMA_4),
    "glm": lambda: hf.GlmConfig(**SIZES, head_dim=16),
    "glm4": lambda: hf.Glm4Config(**SIZES, head_dim=16),
    "glm4_moe": lambda: hf.Glm4MoeConfig(**SIZES, **ROUTED, n_shared_experts=1, head_dim=16),
    "glm4_moe_lite": lambda: hf.Glm4MoeLiteConfig(**SIZES | LATENT, **ROUTED, **ONE_GROUP),
    "gpt2": lambda: hf.GPT2Config(**GPT2, scale_attn_by_inverse_layer_idx=True),
    "gpt_bigcode": lambda: hf.GPTBigCodeConfig(**GPT2),
    "gpt_neox": lambda: hf.GPTNeoXConfig(**MANY),
    "gptj": lambda: hf.GPTJConfig(**GPT2, rotary_dim=8),
    "granite": lambda: hf.GraniteConfig(
        **SIZES, logits_scaling=8.0, embedding_multiplier=12.0, residual_multiplier=0.22, attention_multiplier=0.1
    ),
    "granitemoe": lambda: hf.GraniteMoeConfig(**SIZES, **LOCAL, logits_scaling=8.0, attention_multiplier=0.1),
    "granitemoeshared": lambda: hf.GraniteMoeSharedConfig(**SIZES, **LOCAL, shared_intermediate_size=48),
    "helium": lambda: hf.HeliumConfig(**SIZES, head_dim=16),
    "hunyuan_v1_dense": lambda: hf.HunYuanDenseV1Config(**SIZES, head_dim=16),
    "hunyuan_v1_moe": lambda: hf.HunYuanMoEV1Config(**SIZES, num_experts=4, moe_topk=2, head_dim=16),
    "hyperclovax": lambda: hf.HyperCLOVAXConfig(**SIZES),
    "jais2": lambda: hf.Jais2Config(**SIZES),
    "minicpm3": lambda: hf.MiniCPM3Config(**SIZES | LATENT),
    "minimax_m2": lambda: hf.MiniMaxM2Config(**SIZES, **LOCAL, head_dim=16),
    "ministral": lambda: hf.MinistralConfig(**SIZES, **WINDOW, head_dim=16),
    "ministral3": lambda: hf.Ministral3Config(**SIZES, head_dim=16),
    "mixtral": lambda: hf.MixtralConfig(**SIZES, **WINDOW, num_local_experts=4),
    "modernbert_decoder": lambda: hf.ModernBertDecoderConfig(**MANY, sliding_window=9, global_attn_every_n_layers=2),
    "nanochat": lambda: hf.NanoChatConfig(**SIZES),
    "nemotron": lambda: hf.NemotronConfig(**SIZES),
    "olmo": lambda: hf.OlmoConfig(**SIZES, clip_qkv=3.0),
    "olmo2": lambda: hf.Olmo2Config(**SIZES),
    "olmo3": lambda: hf.Olmo3Config(**SIZES, **MIXED),
    "olmoe": lambda: hf.OlmoeConfig(**SIZES, **EXPERTS),
    "opt": lambda: hf.OPTConfig(**OPT, word_embed_proj_dim=64),
    "opt, narrow": lambda: hf.OPTConfig(**OPT, word_embed_proj_dim=32, do_layer_norm_before=False),
    "persimmon": lambda: hf.PersimmonConfig(**MANY),
    "phi": lambda: hf.PhiConfig(**SIZES),
    "phi3": lambda: hf.Phi3Config(**SIZES, **WINDOW),
    "phimoe": lambda: hf.PhimoeConfig(**SIZES, num_local_experts=4, sliding_window=None),
    "qwen2_moe": lambda: hf.Qwen2MoeConfig(
        **SIZES, **EXPERTS, moe_intermediate_size=48, shared_expert_intermediate_size=48, decoder_sparse_step=1
    ),
    "qwen3_moe": lambda: hf.Qwen3MoeConfig(
        **SIZES, **EXPERTS, moe_intermediate_size=48, head_dim=16, decoder_sparse_step=1
    ),
    "seed_oss": lambda: hf.SeedOssConfig(**SIZES, head_dim=16),
    "smollm3": lambda: hf.SmolLM3Config(**SIZES, no_rope_layers=[1, 0]),
    "stablelm": lambda: hf.StableLmConfig(**SIZES, use_qkv_bias=True, qk_layernorm=True),
    "starcoder2": lambda: hf.Starcoder2Config(**SIZES, **WINDOW),
    "vaultgemma": lambda: hf.VaultGemmaConfig(**SIZES, **WINDOW, head_dim=16),
    "youtu": lambda: hf.YoutuConfig(**SIZES | LATENT, tie_word_embeddings=False),
}
"""Those that run."""

NO_INTERFACE = "it has attention that does not go through transformers' interface, or none at all"
DECODED = "it is an encoder that became a decoder"
LINEAR = "it has layers of linear_attention"
REFUSED: dict[str, tuple[Callable[[], hf.PretrainedConfig], str]] = {
    "bart": (
        lambda: hf.BartConfig(vocab_size=VOCABULARY, d_model=64, encoder_layers=1, decoder_layers=1),
        "it is an encoder and a decoder",
    ),
    "bert": (lambda: hf.BertConfig(**MANY), "it has a mask that is neither causal nor a sliding window"),
    "bloom": (lambda: hf.BloomConfig(vocab_size=VOCABULARY, hidden_size=64, n_layer=2, n_head=4), NO_INTERFACE),
    "dbrx": (
        lambda: hf.DbrxConfig(
            d_model=64,
            n_heads=4,
            n_layers=2,
            vocab_size=VOCABULARY,
            attn_config={"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        ),
        "its code does not run without numbers: NotImplementedError",
    ),
    "deepseek_v32": (
        lambda: hf.DeepseekV32Config(**SIZES | LATENT, **ROUTED, **ONE_GROUP),
        "it has layers of indexed_attention",
    ),
    "doge": (lambda: hf.DogeConfig(**SIZES, head_dim=16), "it has masks of the model's own, or a bias on scores"),
    "falcon": (lambda: hf.FalconConfig(**MANY), NO_INTERFACE),
    "falcon_h1": (
        lambda: hf.FalconH1Config(**SIZES, mamba_n_heads=8, mamba_d_head=16, mamba_d_ssm=128, mamba_n_groups=1),
        "it has layers of hybrid",
    ),
    "gemma3, dynamic": (
        lambda: hf.Gemma3TextConfig(
            **SIZES,
            **MIXED,
            rope_parameters={
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
                "full_attention": {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0},
            },
        ),
        "its rotary frequencies follow the longest context of a batch",
    ),
    "gemma4, uneven": (
        lambda: hf.Gemma4TextConfig(
            **SIZES | GEMMA_4 | {"num_attention_heads": 6, "num_key_value_heads": 3, "num_global_key_value_heads": 2}
        ),
        "its layers differ in their heads",
    ),
    "gpt_neo": (
        lambda: hf.GPTNeoConfig(
            vocab_size=VOCABULARY, hidden_size=64, num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]]
        ),
        NO_INTERFACE,
    ),
    "gpt_oss": (lambda: hf.GptOssConfig(**SIZES, **LOCAL, **WINDOW, head_dim=16), "it has attention with s_aux"),
    "hrm_text": (lambda: hf.HrmTextConfig(**SIZES), "it has layers that run several times"),
    "jamba": (lambda: hf.JambaConfig(**SIZES, num_experts=4, attn_layer_period=2, attn_layer_offset=1), LINEAR),
    "lfm2": (lambda: hf.Lfm2Config(**SIZES, layer_types=["conv", "full_attention"]), "it has layers of conv"),
    "llama4": (
        lambda: hf.Llama4TextConfig(
            **SIZES, num_local_experts=4, head_dim=16, layer_types=["chunked_attention", "full_attention"]
        ),
        "it has layers of chunked_attention",
    ),
    "mamba": (lambda: hf.MambaConfig(vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2), LINEAR),
    "mpt": (lambda: hf.MptConfig(vocab_size=VOCABULARY, d_model=64, n_layers=2, n_heads=4), NO_INTERFACE),
    "roberta": (lambda: hf.RobertaConfig(**MANY, is_decoder=True), DECODED),
    "rwkv": (lambda: hf.RwkvConfig(vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2), NO_INTERFACE),
    "stablelm, dynamic": (
        lambda: hf.StableLmConfig(
            **SIZES, rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 2.0}
        ),
        "its rotary frequencies follow the longest context of a batch",
    ),
    "xglm": (lambda: hf.XGLMConfig(vocab_size=VOCABULARY, d_model=64, ffn_dim=96, num_layers=2), NO_INTERFACE),
}
"""Those that do not, and why."""


@dataclass(frozen=True)
class Checkpoint:
    """A model directory, and transformers' instance of it."""

    resolved: ResolvedModel
    reference: Any

    def logits(self, token_ids: list[int]) -> torch.Tensor:
        """transformers' logits [tokens, vocabulary]."""
        with torch.no_grad():
            return self.reference(torch.tensor([token_ids])).logits[0]

    def generate(self, token_ids: list[int], tokens: int) -> list[int]:
        """What transformers generates, greedily."""
        prompt = torch.tensor([token_ids])
        with torch.no_grad():
            output = self.reference.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                max_new_tokens=tokens,
                do_sample=False,
                eos_token_id=None,
                pad_token_id=0,
            )
        return output[0, len(token_ids) :].tolist()


def make(config: hf.PretrainedConfig, folder: Path) -> Checkpoint:
    """A model whose every parameter is random."""
    torch.manual_seed(7)
    reference = hf.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
    with torch.no_grad():
        for name, parameter in reference.named_parameters():
            if parameter.is_floating_point():
                parameter.normal_(1.0 if "norm" in name or "ln_" in name else 0.0, 0.2)
    reference.save_pretrained(folder)
    return Checkpoint(ResolvedModel(name=folder.name, path=folder, format="huggingface"), reference)

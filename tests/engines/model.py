#!/usr/bin/env python3
"""Makes a language model with random weights from a fixed seed: 2 layers, hidden size 64, a byte-level BPE tokenizer of about 500 tokens and a chat template.

    model.py FOLDER [--gguf | --safetensors]

FOLDER gets tokenizer.json and either model.gguf (llama.cpp) or config.json, model.safetensors and the tokenizer's settings (vLLM).
The text that the model generates has no sense, but its tokens, chat format and API are those of a real engine. The weights of the output
layer keep it to ASCII text of single tokens, make an end of the text about as likely as in a real model, and exclude the other special tokens.
"""
import argparse
import json
import pathlib

import numpy
import tokenizers

SEED, LAYERS, HIDDEN, INNER, HEADS, VOCABULARY = 20261129, 2, 64, 8192, 2, 512
CONTEXT = 4096
# Both lists follow the BPE tokens in the order of ids.
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"]
MARKERS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
END = "<|im_end|>"
# In the form of Qwen3's, from which engines derive how reasoning and tool calls look.
TEMPLATE = """{%- if tools %}{{- '<|im_start|>system\\n# Tools\\nCall functions within <tool_call></tool_call>:\\n<tools>' }}
{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\\n</tools>\\n<tool_call>\\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{%- set content = message.content if message.content is string else '' %}
{%- if message.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}
{%- if message.reasoning_content %}{{- '<think>\\n' + message.reasoning_content + '\\n</think>\\n\\n' }}{%- endif %}{{- content }}
{%- for call in message.tool_calls or [] %}
{%- if not loop.first or content %}{{- '\\n' }}{%- endif %}
{{- '<tool_call>\\n{\\"name\\": \\"' + call.function.name + '\\", \\"arguments\\": ' }}
{{- call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor %}{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}{{- '<|im_start|>user\\n<tool_response>\\n' + content + '\\n</tool_response><|im_end|>\\n' }}
{%- else %}{{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking %}{{- '<think>\\n' }}{%- else %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"""
TEXT = """A proxy forwards every request and every response unchanged. The time to first token is the time from the request to the first token of the response.
The queue of an engine holds the requests that wait for a place in the batch. A token is a part of a word, such as " token", "ing" or "123".
Water boils at 100 degrees. The weather in Paris is mild in spring; in Oslo it is cold. {"name": "weather", "arguments": {"city": "Paris"}}
Une réponse arrive par morceaux. Die Antwort kommt in Stücken. Ответ приходит по частям. 答案分段到达。 def main(): return [0, 1, 2]
"""


def make_tokenizer(path):
    """Trains the tokenizer on the text above, and returns it."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL) - len(MARKERS), initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens([tokenizers.AddedToken(marker, normalized=False) for marker in MARKERS])
    tokenizer.save(str(path))
    return tokenizer


def make_tensors(tokenizer):
    """Returns the weights by their names in the `transformers` library."""
    random = numpy.random.default_rng(SEED)
    size = tokenizer.get_vocab_size()

    def matrix(rows, columns, scale=1.0):
        return (random.standard_normal((rows, columns)) * scale / columns ** 0.5).astype(numpy.float32)

    tensors = {"model.embed_tokens.weight": matrix(size, HIDDEN, 8.0), "model.norm.weight": numpy.ones(HIDDEN, numpy.float32),
               "lm_head.weight": matrix(size, HIDDEN, 3.0)}
    # The first dimension has the same large value for each token, so that the output layer can use it as bias.
    tensors["model.embed_tokens.weight"][:, 0] = 8.0
    for id in range(size):
        text = tokenizer.decode([id], skip_special_tokens=False)
        plain = text.isascii() and text.isprintable() and text not in SPECIAL + MARKERS
        tensors["lm_head.weight"][id, 0] = 0.0 if plain else -1.0 if text == END else -20.0
    # A line break follows each <tool_call>, because the grammar of tool calls starts there. No other token uses the second dimension.
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        tensors[name][:, 1] = 0.0
    tensors["model.embed_tokens.weight"][tokenizer.token_to_id("<tool_call>"), 1] = 100.0
    tensors["lm_head.weight"][tokenizer.encode("\n").ids[0], 1] = 100.0
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        for name in ("q", "k", "v", "o"):
            tensors[f"{prefix}self_attn.{name}_proj.weight"] = matrix(HIDDEN, HIDDEN)
        for name, rows, columns in (("gate", INNER, HIDDEN), ("up", INNER, HIDDEN), ("down", HIDDEN, INNER)):
            tensors[f"{prefix}mlp.{name}_proj.weight"] = matrix(rows, columns)
        # No layer writes to the first two dimensions.
        tensors[f"{prefix}self_attn.o_proj.weight"][:2] = tensors[f"{prefix}mlp.down_proj.weight"][:2] = 0.0
        for name in ("input", "post_attention"):
            tensors[f"{prefix}{name}_layernorm.weight"] = numpy.ones(HIDDEN, numpy.float32)
    return tensors


GGUF_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output", "self_attn.q_proj": "attn_q",
              "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
              "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}


def write_gguf(path, tokenizer, tensors):
    import gguf

    model = json.loads(tokenizer.to_str())["model"]
    size = tokenizer.get_vocab_size()
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name("tiny")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(HIDDEN // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(size)
    # Of embeddings.
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([tokenizer.id_to_token(id) for id in range(size)])
    kinds = {**{token: gguf.TokenType.CONTROL for token in SPECIAL}, **{token: gguf.TokenType.USER_DEFINED for token in MARKERS}}
    writer.add_token_types([kinds.get(tokenizer.id_to_token(id), gguf.TokenType.NORMAL) for id in range(size)])
    for role in ("prefix", "middle", "suffix"):
        writer.add_uint32(f"tokenizer.ggml.fim_{role[:3]}_token_id", tokenizer.token_to_id(f"<|fim_{role}|>"))
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_eos_token_id(tokenizer.token_to_id(END))
    writer.add_bos_token_id(tokenizer.token_to_id(SPECIAL[0]))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in tensors.items():
        name = name.removeprefix("model.layers.").removesuffix(".weight") if "layers" in name else name.removesuffix(".weight")
        layer, rest = name.split(".", 1) if name[0].isdigit() else (None, name)
        writer.add_tensor((f"blk.{layer}." if layer else "") + GGUF_NAMES[rest] + ".weight", tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_safetensors(folder, tokenizer, tensors):
    import safetensors.numpy

    safetensors.numpy.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    end = tokenizer.token_to_id(END)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN, "intermediate_size": INNER,
        "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HIDDEN // HEADS,
        "vocab_size": tokenizer.get_vocab_size(), "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "tie_word_embeddings": False, "torch_dtype": "float32", "eos_token_id": end, "bos_token_id": tokenizer.token_to_id(SPECIAL[0])}))
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END, "bos_token": SPECIAL[0], "chat_template": TEMPLATE,
        "model_max_length": CONTEXT, "clean_up_tokenization_spaces": False}))


def main():
    cli = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cli.add_argument("folder", type=pathlib.Path)
    cli.add_argument("--safetensors", action="store_true", help="for vLLM; without it, GGUF for llama.cpp")
    args = cli.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(args.folder / "tokenizer.json")
    tensors = make_tensors(tokenizer)
    if args.safetensors:
        write_safetensors(args.folder, tokenizer, tensors)
    else:
        write_gguf(args.folder / "model.gguf", tokenizer, tensors)


if __name__ == "__main__":
    main()

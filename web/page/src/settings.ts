// Made from the list of settings, engine/src/settings/list.rs: don't edit.

/** The settings that the page shows. `null` leaves a value to the engine. */
export interface Settings {
  model: {
    /** Architecture */
    family: "gpt2" | "llama" | "mistral" | "qwen2" | "qwen3" | "gemma2" | "gemma3" | "phi3" | "smollm3" | "olmo2" | "vit";
    /** Transformer blocks */
    layers: number;
    /** Width of the residual stream */
    channels: number;
    /** Attention heads; divides channels */
    heads: number;
    /** Key and value heads; divides heads */
    kv_heads: number | null;
    /** Inner width of the feed-forward layer */
    hidden: number | null;
    /** Longest sequence */
    context: number;
    /** Vocabulary */
    vocab: number | null;
    /** Use the embedding as the output layer */
    tied: boolean;
    /** Probability of dropping an activation */
    dropout: number;
    /** Pixels of a patch along each side, or HEIGHTxWIDTH; divides image_size */
    patch_size: number | null;
  };
  train: {
    /** Sequences or images per optimizer step */
    batch: number;
    /** Sequences or images per pass; divides batch */
    micro_batch: number | "auto";
    /** Optimizer steps */
    steps: number;
    /** Update rule */
    optimizer: "adamw" | "sgd" | "lion" | "muon" | "adafactor";
    /** Peak learning rate */
    lr: number;
    /** Learning rate that the schedule ends at */
    min_lr: number | null;
    /** Steps until the learning rate reaches lr */
    warmup: number | null;
    /** Learning rate after the warmup */
    schedule: "cosine" | "linear" | "constant";
    /** Decay of matrices: decoupled, but for SGD, which adds it to the gradient */
    weight_decay: number;
    /** Decay of the first moment; momentum of SGD */
    beta1: number;
    /** Decay of the second moment */
    beta2: number;
    /** Term in the denominator of Adam */
    eps: number;
    /** Largest gradient norm; 0 is no clipping */
    clip: number;
    /** Seed of weights, dropout, data order and samples */
    seed: number;
  };
  lora: {
    /** Rank of adapters that are trained on frozen weights; 0 trains all weights */
    rank: number;
  };
  memory: {
    /** Memory that the plan may use, such as 2GiB */
    budget: number | null;
    /** Activations to recompute in the backward pass: auto, none, block, every:N, sqrt, or all but a list of tensors */
    recompute: string;
    /** Rows of logits at once: a number, auto or none */
    loss_chunk: number | "auto" | "none";
    /** How attention is computed: fused, which stores no scores; or eager, which stores all of them, to see what that takes */
    attention: "fused" | "eager";
    /** Storage of gradients of matrices: f32, bf16, or bf16-kahan, which keeps the rounding error of their sums over several passes beside them */
    gradients: "f32" | "bf16" | "bf16-kahan";
    /** Master of bf16 weights: f32, in 16 bits more; or none, and updates round weights stochastically */
    master: "f32" | "none";
    /** Bits per number of optimizer state: 32, 16 or 8 */
    optimizer_bits: 32 | 16 | 8;
    /** The same for tables of embeddings where optimizer_bits is 8: 32, or 8 with a scale for each row */
    table_bits: 32 | 8;
    /** What the host keeps for a GPU: optimizer (its state and the update), gradients, activations, weights */
    offload: readonly ("optimizer" | "gradients" | "activations" | "weights")[];
    /** Update each weight as soon as its gradient is made: in one pass a step, without clipping, and without skipping steps that aren't finite */
    consume_gradients: boolean;
  };
  data: {
    /** Tokenizer: byte, gpt2, or a tokenizer.json */
    tokenizer: "byte" | "gpt2";
    /** Part of the data kept for evaluation; `eval` scores all of it at 0 and at 1 */
    holdout: number;
  };
  run: {
    /** Storage of weights and activations; tf32 is f32 with less exact matmuls */
    precision: "f32" | "bf16" | "f16";
  };
}

export const TABLES = ["model","train","lora","memory","data","run"] as const;
export type Table = (typeof TABLES)[number];

/** What a model of each family reads. */
export const READS = { gpt2: "text", llama: "text", mistral: "text", qwen2: "text", qwen3: "text", gemma2: "text", gemma3: "text", phi3: "text", smollm3: "text", olmo2: "text", vit: "images", bert: "text" } as const;
export type Reads = (typeof READS)[keyof typeof READS];

/** What a setting accepts; `expected` follows "must be". */
export type Rule = { expected: string } & (
  | { type: "switch" }
  | { type: "choice"; choices: readonly (string | number)[] }
  | { type: "integer"; min: number; max: number }
  | { type: "number"; min: number; above?: true; below?: number }
  | { type: "form"; words: readonly string[]; pattern?: string; whole?: true }
  | { type: "text" }
  | { type: "list"; choices?: readonly string[] }
);

/** One line of the list of settings. */
export interface Setting {
  table: Table;
  key: string;
  /** Keys of earlier versions. */
  old: readonly string[];
  help: string;
  rule: Rule;
  /** Absent where the setting needs no value. */
  default?: string | number | boolean | readonly string[];
  /** Whether it may be `null`, which leaves it to the engine. */
  none?: true;
  /** What the models read that it is a setting of; absent where it is one of every model. */
  reads?: Reads;
  /** Under which the form shows it; settings without one have a control of their own. */
  label?: string;
  /** Whether the form folds it away. */
  more?: true;
  /** What an empty input means. */
  empty?: string;
}

export const SETTINGS: readonly Setting[] = [
  {"help":"Architecture [default: the preset's or that of init]","key":"family","label":"Family","old":[],"rule":{"choices":["gpt2","llama","mistral","qwen2","qwen3","gemma2","gemma3","phi3","smollm3","olmo2","vit"],"expected":"one of gpt2, llama, mistral, qwen2, qwen3, gemma2, gemma3, phi3, smollm3, olmo2, vit","type":"choice"},"table":"model"},
  {"help":"Transformer blocks [default: the preset's or that of init]","key":"layers","label":"Layers","old":[],"rule":{"expected":"a whole number, 1 or more","max":1000000000,"min":1,"type":"integer"},"table":"model"},
  {"help":"Width of the residual stream [default: the preset's or that of init]","key":"channels","label":"Channels","old":[],"rule":{"expected":"a whole number, 1 or more","max":1000000000,"min":1,"type":"integer"},"table":"model"},
  {"help":"Attention heads; divides channels [default: the preset's or that of init]","key":"heads","label":"Heads","old":[],"rule":{"expected":"a whole number, 1 or more","max":1000000000,"min":1,"type":"integer"},"table":"model"},
  {"empty":"as heads","help":"Key and value heads; divides heads [default: as many as heads]","key":"kv_heads","label":"Key–value heads","more":true,"none":true,"old":[],"reads":"text","rule":{"expected":"a whole number, 1 or more","max":1000000000,"min":1,"type":"integer"},"table":"model"},
  {"empty":"by family","help":"Inner width of the feed-forward layer [default: the preset's or that of init]","key":"hidden","label":"Hidden width","more":true,"none":true,"old":[],"rule":{"expected":"a whole number, 1 or more","max":1000000000,"min":1,"type":"integer"},"table":"model"},
  {"help":"Longest sequence [default: the preset's or that of init]","key":"context","label":"Context","old":[],"reads":"text","rule":{"expected":"a whole number, 1 or more","max":1000000000,"min":1,"type":"integer"},"table":"model"},
  {"empty":"the tokenizer’s","help":"Vocabulary [default: the tokenizer's]","key":"vocab","label":"Vocabulary","more":true,"none":true,"old":[],"reads":"text","rule":{"expected":"a whole number, 1 or more","max":1000000000,"min":1,"type":"integer"},"table":"model"},
  {"help":"Use the embedding as the output layer [default: the preset's or that of init]","key":"tied","label":"Output tied to embedding","more":true,"old":[],"reads":"text","rule":{"expected":"true or false","type":"switch"},"table":"model"},
  {"help":"Probability of dropping an activation [default: the preset's]","key":"dropout","label":"Dropout","more":true,"old":[],"rule":{"below":1,"expected":"a number, 0 or more and below 1","min":0,"type":"number"},"table":"model"},
  {"empty":"by preset","help":"Pixels of a patch along each side, or HEIGHTxWIDTH; divides image_size [default: the preset's or that of init]","key":"patch_size","label":"Patch, pixels","none":true,"old":[],"reads":"images","rule":{"expected":"a number of pixels, 1 or more, or \"HEIGHTxWIDTH\"","type":"form","whole":true,"words":[]},"table":"model"},
  {"help":"Sequences or images per optimizer step [default: the preset's]","key":"batch","label":"Batch","old":[],"rule":{"expected":"a whole number, 1 or more","max":1048576,"min":1,"type":"integer"},"table":"train"},
  {"default":"auto","empty":"auto","help":"Sequences or images per pass; divides batch [default: auto]","key":"micro_batch","label":"Micro-batch","old":[],"rule":{"expected":"a whole number, 1 or more, or \"auto\"","type":"form","whole":true,"words":["auto"]},"table":"train"},
  {"help":"Optimizer steps [default: 1850, or what epochs come to]","key":"steps","label":"Steps","old":[],"rule":{"expected":"a whole number, 1 or more","max":1000000000,"min":1,"type":"integer"},"table":"train"},
  {"default":"adamw","help":"Update rule [default: adamw]","key":"optimizer","label":"Optimizer","old":[],"rule":{"choices":["adamw","sgd","lion","muon","adafactor"],"expected":"adamw, sgd, lion, muon or adafactor","type":"choice"},"table":"train"},
  {"help":"Peak learning rate [default: by the width; from init 2e-5, 1e-6 on preferences, 5e-5 for encoders; ten times as much for adapters]","key":"lr","label":"Learning rate","old":[],"rule":{"expected":"a number, 0 or more","min":0,"type":"number"},"table":"train"},
  {"empty":"a tenth","help":"Learning rate that the schedule ends at [default: a tenth of lr]","key":"min_lr","label":"Final rate","more":true,"none":true,"old":[],"rule":{"expected":"a number, 0 or more","min":0,"type":"number"},"table":"train"},
  {"empty":"5 %","help":"Steps until the learning rate reaches lr [default: a twentieth of steps]","key":"warmup","label":"Warmup, steps","more":true,"none":true,"old":[],"rule":{"expected":"a whole number, 0 or more","max":1000000000,"min":0,"type":"integer"},"table":"train"},
  {"default":"cosine","help":"Learning rate after the warmup [default: cosine]","key":"schedule","label":"Schedule","more":true,"old":[],"rule":{"choices":["cosine","linear","constant"],"expected":"cosine, linear or constant","type":"choice"},"table":"train"},
  {"default":0.1,"help":"Decay of matrices: decoupled, but for SGD, which adds it to the gradient [default: 0.1]","key":"weight_decay","label":"Weight decay","more":true,"old":[],"rule":{"expected":"a number, 0 or more","min":0,"type":"number"},"table":"train"},
  {"default":0.9,"help":"Decay of the first moment; momentum of SGD [default: 0.9]","key":"beta1","label":"Beta 1","more":true,"old":[],"rule":{"below":1,"expected":"a number, 0 or more and below 1","min":0,"type":"number"},"table":"train"},
  {"default":0.99,"help":"Decay of the second moment [default: 0.99]","key":"beta2","label":"Beta 2","more":true,"old":[],"rule":{"below":1,"expected":"a number, 0 or more and below 1","min":0,"type":"number"},"table":"train"},
  {"default":1e-8,"help":"Term in the denominator of Adam [default: 1e-8]","key":"eps","label":"Epsilon","more":true,"old":[],"rule":{"above":true,"expected":"a number above 0","min":0,"type":"number"},"table":"train"},
  {"default":1.0,"help":"Largest gradient norm; 0 is no clipping [default: 1.0]","key":"clip","label":"Clip norm at","more":true,"old":[],"rule":{"expected":"a number, 0 or more","min":0,"type":"number"},"table":"train"},
  {"default":1337,"help":"Seed of weights, dropout, data order and samples [default: 1337]","key":"seed","label":"Seed","more":true,"old":[],"rule":{"expected":"a whole number, 0 or more","max":9007199254740991,"min":0,"type":"integer"},"table":"train"},
  {"default":0,"help":"Rank of adapters that are trained on frozen weights; 0 trains all weights [default: 0]","key":"rank","label":"LoRA rank","old":[],"rule":{"expected":"a whole number, 0 or more","max":1000000000,"min":0,"type":"integer"},"table":"lora"},
  {"help":"Memory that the plan may use, such as 2GiB [default: what the device has free]","key":"budget","none":true,"old":[],"rule":{"expected":"a size above 0, such as \"2GiB\", \"1.5 GB\", \"512MiB\" or a number of bytes","type":"form","whole":true,"words":[]},"table":"memory"},
  {"default":"auto","help":"Activations to recompute in the backward pass: auto, none, block, every:N, sqrt, or all but a list of tensors [default: auto]","key":"recompute","label":"Recompute","old":["checkpoint"],"rule":{"expected":"\"auto\", \"none\", \"block\", \"every:N\", \"sqrt\" or a list of the tensors to keep","pattern":"^every:0*[1-9][0-9]*$","type":"form","words":["auto","none","block","sqrt"]},"table":"memory"},
  {"default":"auto","empty":"auto","help":"Rows of logits at once: a number, auto or none [default: auto]","key":"loss_chunk","label":"Loss chunk, rows","more":true,"old":[],"rule":{"expected":"a number of rows, 1 or more, \"auto\" or \"none\"","type":"form","whole":true,"words":["auto","none"]},"table":"memory"},
  {"default":"fused","help":"How attention is computed: fused, which stores no scores; or eager, which stores all of them, to see what that takes [default: fused]","key":"attention","label":"Attention","more":true,"old":[],"rule":{"choices":["fused","eager"],"expected":"fused or eager","type":"choice"},"table":"memory"},
  {"default":"f32","help":"Storage of gradients of matrices: f32, bf16, or bf16-kahan, which keeps the rounding error of their sums over several passes beside them [default: f32]","key":"gradients","label":"Gradients","more":true,"old":[],"rule":{"choices":["f32","bf16","bf16-kahan"],"expected":"f32, bf16 or bf16-kahan","type":"choice"},"table":"memory"},
  {"default":"f32","help":"Master of bf16 weights: f32, in 16 bits more; or none, and updates round weights stochastically [default: f32]","key":"master","label":"Master weights","more":true,"old":[],"rule":{"choices":["f32","none"],"expected":"f32 or none","type":"choice"},"table":"memory"},
  {"default":32,"help":"Bits per number of optimizer state: 32, 16 or 8 [default: 32]","key":"optimizer_bits","label":"Optimizer state","more":true,"old":[],"rule":{"choices":[32,16,8],"expected":"32, 16 or 8","type":"choice"},"table":"memory"},
  {"default":32,"help":"The same for tables of embeddings where optimizer_bits is 8: 32, or 8 with a scale for each row [default: 32]","key":"table_bits","label":"State of tables","more":true,"old":[],"rule":{"choices":[32,8],"expected":"32 or 8","type":"choice"},"table":"memory"},
  {"default":[],"help":"What the host keeps for a GPU: optimizer (its state and the update), gradients, activations, weights [default: none]","key":"offload","label":"Offload","more":true,"old":[],"rule":{"choices":["optimizer","gradients","activations","weights"],"expected":"a list of optimizer, gradients, activations or weights","type":"list"},"table":"memory"},
  {"default":false,"help":"Update each weight as soon as its gradient is made: in one pass a step, without clipping, and without skipping steps that aren't finite [default: false]","key":"consume_gradients","label":"Consume gradients","more":true,"old":[],"rule":{"expected":"true or false","type":"switch"},"table":"memory"},
  {"help":"Tokenizer: byte, gpt2, or a tokenizer.json [default: the one that fits the model]","key":"tokenizer","label":"Tokenizer","old":[],"reads":"text","rule":{"choices":["byte","gpt2"],"expected":"one of byte, gpt2","type":"choice"},"table":"data"},
  {"default":0.1,"help":"Part of the data kept for evaluation; `eval` scores all of it at 0 and at 1 [default: 0.1]","key":"holdout","label":"Held-out share","more":true,"old":[],"rule":{"below":1,"expected":"a number from 0 to 1","min":0,"type":"number"},"table":"data"},
  {"default":"f32","help":"Storage of weights and activations; tf32 is f32 with less exact matmuls [default: f32]","key":"precision","label":"Precision","old":[],"rule":{"choices":["f32","bf16","f16"],"expected":"one of f32, bf16, f16","type":"choice"},"table":"run"},
];

mod aleph_alpha;
mod cloudflare;
mod dashscope;
mod watsonx;

#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| tokengauge_fuzz::entries::templates(input));

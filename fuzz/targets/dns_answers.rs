#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| brisk_dns::fuzz::dns_answers(bytes));

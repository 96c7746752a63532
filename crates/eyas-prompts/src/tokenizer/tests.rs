use super::*;
use eyas_testkit::{shared_case, shared_dir};
use serde_json::{Value, json};

/// A byte-fallback tokenizer: `▁` for blanks, `<0xNN>` for bytes; optionally one leading blank is stripped.
fn byte_fallback(strip: bool) -> Tokenizer {
    let mut vocab = serde_json::Map::from_iter([("<unk>".to_owned(), json!(0)), ("</s>".to_owned(), json!(1))]);
    for byte in 0..256 {
        vocab.insert(format!("<0x{byte:02X}>"), json!(2 + byte));
    }
    for (n, token) in ["▁", "▁a", "b", "é", "▁▁", "<0x"].iter().enumerate() {
        vocab.insert((*token).to_owned(), json!(258 + n));
    }
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if strip {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    let special = json!({"id": 1, "content": "</s>", "special": true, "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": false});
    let tokenizer = json!({"version": "1.0", "added_tokens": [special], "normalizer": null, "pre_tokenizer": null,
        "post_processor": null, "decoder": {"type": "Sequence", "decoders": decoders},
        "model": {"type": "BPE", "vocab": vocab, "merges": [], "byte_fallback": true, "unk_token": "<unk>"}});
    Tokenizer::from_bytes(tokenizer.to_string().as_bytes()).unwrap()
}

/// A seeded walk over ids: long runs and single ones.
fn walk(n_ids: u32, len: usize, seed: u64) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..len).map(|_| u32::try_from(next() % u64::from(n_ids)).unwrap()).collect()
}

#[track_caller]
fn check_parity(tokenizer: &Tokenizer, ids: &[u32]) {
    for specials in [Specials::Keep, Specials::Skip] {
        let by_table = tokenizer.decode(ids, specials).unwrap();
        assert_eq!(by_table, tokenizer.decode_by_library(ids, specials).unwrap(), "{ids:?}");
    }
}

#[test]
fn the_table_decodes_as_the_library_does() {
    let mut tokenizers = vec![byte_fallback(false), byte_fallback(true)];
    if let Some(shared) = shared_dir() {
        let files = ["cases/common/tiny_tok/tokenizer.json", "fixtures/tokenizer_small/modelopt_tiny__tokenizer.json"];
        tokenizers.extend(files.iter().map(|file| Tokenizer::from_file(&shared.join(file)).unwrap()));
    }
    for tokenizer in &tokenizers {
        assert!(tokenizer.table.is_some());
        for id in 0..tokenizer.n_ids() {
            if tokenizer.token_of(id).is_some() {
                check_parity(tokenizer, &[id]);
            }
        }
        let known: Vec<u32> = (0..tokenizer.n_ids()).filter(|id| tokenizer.token_of(*id).is_some()).collect();
        for seed in 1..200 {
            let places = walk(u32::try_from(known.len()).unwrap(), 40, seed);
            let ids: Vec<u32> = places.iter().map(|place| known[*place as usize]).collect();
            check_parity(tokenizer, &ids);
        }
    }
}

#[test]
fn characters_in_two_tokens_come_out_whole() {
    let tokenizer = byte_fallback(false);
    let euro = [0xe2, 0x82, 0xac].map(|byte| 2 + byte);
    assert_eq!(tokenizer.decode(&euro, Specials::Keep).unwrap(), "€");
    assert_eq!(tokenizer.decode(&euro[..2], Specials::Keep).unwrap(), "\u{fffd}\u{fffd}", "cut: one per byte token");
    assert_eq!(tokenizer.decode(&[259, 1, 260], Specials::Skip).unwrap(), " ab");
    assert_eq!(tokenizer.decode(&[259, 1, 260], Specials::Keep).unwrap(), " a</s>b");
}

#[test]
fn unknown_ids_are_errors() {
    let tokenizer = byte_fallback(false);
    for decode in [Tokenizer::decode, Tokenizer::decode_by_library] {
        let error = decode(&tokenizer, &[5, 999], Specials::Skip).unwrap_err();
        assert_eq!(error.to_string(), "id 999 at position 1 is not in the vocabulary of 264 ids");
    }
}

#[test]
fn end_ids_are_the_union_of_what_the_files_name() {
    let dir = tempfile::tempdir().unwrap();
    let Some(case) = shared_case("SPECTOK-01") else { return };
    let tokenizer = std::fs::read(case.common("tiny_tok/tokenizer.json")).unwrap();
    eyas_testkit::write_file(dir.path().join("tokenizer.json"), tokenizer);
    let load = || Tokenizer::load(dir.path()).unwrap();
    assert!(load().eos_ids().is_empty());
    eyas_testkit::write_file(dir.path().join("tokenizer_config.json"), r#"{"eos_token": {"content": "<|im_end|>"}}"#);
    eyas_testkit::write_file(dir.path().join("generation_config.json"), r#"{"eos_token_id": [276, 274]}"#);
    eyas_testkit::write_file(dir.path().join("config.json"), r#"{"eos_token_id": 100}"#);
    assert_eq!(load().eos_ids(), [100, 274, 276]);
    assert_eq!(load().special_tokens().eos_token(), Some("<|im_end|>"));
}

/// DeepSeek-V4's tokenizer: ids made by other tools come back through text, and the table agrees with the library.
#[test]
fn a_large_vocabulary_round_trips() {
    let Some(shared) = shared_dir() else { return };
    let folder = shared.join("fixtures/deepseek");
    let tokenizer = Tokenizer::from_file(&folder.join("deepseek_v4__tokenizer.json")).unwrap();
    for file in ["specforge_ref__deepseek-v32_standard_ref.json", "specforge_ref__deepseek-v3_standard_ref.json"] {
        let reference: Value = serde_json::from_slice(&std::fs::read(folder.join(file)).unwrap()).unwrap();
        let ids: Vec<u32> = serde_json::from_value(reference["input_ids"].clone()).unwrap();
        let text = tokenizer.decode(&ids, Specials::Keep).unwrap();
        assert_eq!(tokenizer.encode(&text).unwrap(), ids, "{file}: {text}");
    }
    for seed in 1..20 {
        check_parity(&tokenizer, &walk(tokenizer.n_ids() - 1_000, 300, seed));
    }
}

//! Writes a file of generated answers for benchmarks: `make_answers BYTES SEED OUT [clean] [ids]`, with what is planted in `OUT.truth.txt`.
#![expect(clippy::disallowed_methods, clippy::print_stderr, reason = "a tool for the bench, not for data")]

#[path = "../tests/it/generator.rs"]
mod generator;

use std::io::{BufWriter, Error, Write};

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [n_bytes, seed, out, options @ ..] = args.as_slice() else {
        eprintln!("usage: make_answers BYTES SEED OUT [clean] [ids]");
        return Err(Error::other("three arguments are needed"));
    };
    let number = |text: &String| text.parse::<u64>().map_err(Error::other);
    let recipe = generator::Recipe {
        n_bytes: number(n_bytes)?,
        seed: number(seed)?,
        faults: !options.iter().any(|option| option == "clean"),
        ids: options.iter().any(|option| option == "ids"),
    };
    let mut file = BufWriter::with_capacity(1 << 20, std::fs::File::create(out)?);
    let mut truth = generator::write(&recipe, &mut file)?;
    file.flush()?;
    truth.lengths.clear();
    std::fs::write(format!("{out}.truth.txt"), format!("{truth:#?}\n"))
}

//! Every seed, and many things made of it. `AGENTVM_FUZZ_ROUNDS` says how many.

use std::fs;
use std::path::Path;

use super::TARGETS;

const ROUNDS: &str = "AGENTVM_FUZZ_ROUNDS";
/// Unless it says otherwise.
const IN_THE_GATE: u64 = 500;
/// Bytes that lengths, signs and strings turn on.
const TELLING: [u8; 12] = [0, 1, 0x0a, b' ', b'(', b')', b'0', b'9', 0x7f, 0x80, 0xfe, 0xff];

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end.max(1) as u64).expect("it is below a usize")
    }

    /// Changes, inserts, removes or repeats a part.
    fn change(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        let end = at + self.below(bytes.len() - at + 1).min(16);
        match self.below(5) {
            0 if at < bytes.len() => bytes[at] = TELLING[self.below(TELLING.len())],
            1 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            2 => bytes.insert(at, TELLING[self.below(TELLING.len())]),
            3 => drop(bytes.drain(at..end)),
            _ => {
                let part = bytes[at..end].to_vec();
                let place = self.below(bytes.len() + 1);
                bytes.splice(place..place, part);
            }
        }
    }
}

#[test]
fn each_target_has_its_fuzzer() {
    let files = fs::read_dir("../fuzz/fuzz_targets").unwrap().map(|entry| entry.unwrap().path());
    let mut fuzzers: Vec<_> = files.map(|path| path.file_stem().unwrap().to_owned()).collect();
    fuzzers.sort_unstable();
    let mut targets = TARGETS.map(|(name, _)| name);
    targets.sort_unstable();
    assert_eq!(fuzzers, targets);
}

#[test]
fn every_seed_and_what_becomes_of_it_is_taken_or_refused() {
    let rounds = std::env::var(ROUNDS).map_or(IN_THE_GATE, |text| text.parse().unwrap());
    for (name, target) in TARGETS {
        let folder = Path::new("fuzz-seeds").join(name);
        let mut seeds: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        seeds.sort_unstable();
        assert!(!seeds.is_empty(), "{name} has seeds");
        for (number, seed) in seeds.iter().enumerate() {
            let seed = fs::read(seed).unwrap();
            (0..=seed.len()).for_each(|end| target(&seed[..end]));
            let mut random = Random(number as u64);
            for _ in 0..rounds {
                let mut bytes = seed.clone();
                for _ in 0..=random.below(8) {
                    random.change(&mut bytes);
                }
                target(&bytes);
            }
        }
    }
}

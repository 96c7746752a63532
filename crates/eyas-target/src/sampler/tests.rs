use super::*;

fn wave(n: usize) -> Vec<f32> {
    (0..n).map(|i| ((i * 7919) as f32 * 0.37).sin() * 4.0).collect()
}

fn sampler(params: SamplingParams) -> Sampler {
    Sampler::new(&params, 42)
}

/// Probability of each id under the filters, as SGLang's torch code states them: over the whole sorted vocabulary.
fn naive(logits: &[f32], params: &SamplingParams) -> Vec<f64> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weight = |&l: &f32| ((f64::from(l) - f64::from(max)) / f64::from(params.temperature)).exp();
    let weights: Vec<f64> = logits.iter().map(weight).collect();
    let total: f64 = weights.iter().sum();
    let mut sorted: Vec<(f64, usize)> = weights.iter().enumerate().map(|(id, w)| (w / total, id)).collect();
    sorted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut cumulative = 0.0;
    let best = sorted[0].0;
    for (rank, (p, _)) in sorted.iter_mut().enumerate() {
        let before = cumulative;
        cumulative += *p;
        let beyond_k = usize::try_from(params.top_k).is_ok_and(|top_k| rank >= top_k);
        if beyond_k || before > f64::from(params.top_p) || *p < best * f64::from(params.min_p) {
            *p = 0.0;
        }
    }
    let kept: f64 = sorted.iter().map(|(p, _)| p).sum();
    let mut out = vec![0.0; logits.len()];
    for (p, id) in sorted {
        out[id] = p / kept;
    }
    out
}

/// Draws often and compares the frequencies with `expect` by chi-square (rare ids pooled); ids of probability 0 must not come up.
fn check_frequencies(logits: &[f32], params: &SamplingParams) {
    const N: usize = 10_000;
    let expect = naive(logits, params);
    let mut sampler = Sampler::new(params, 7);
    let mut counts = vec![0usize; logits.len()];
    for _ in 0..N {
        counts[sampler.draw(logits).unwrap() as usize] += 1;
    }
    let (mut chi_square, mut cells, mut rest) = (0.0, 0usize, (0.0, 0usize));
    for (&count, &p) in counts.iter().zip(&expect) {
        assert!(p > 0.0 || count == 0, "a filtered id came up {count} times under {params:?}");
        let expected = p * N as f64;
        if expected >= 8.0 {
            chi_square += (count as f64 - expected).powi(2) / expected;
            cells += 1;
        } else {
            rest = (rest.0 + expected, rest.1 + count);
        }
    }
    if rest.0 >= 8.0 {
        chi_square += (rest.1 as f64 - rest.0).powi(2) / rest.0;
        cells += 1;
    }
    // Mean of a chi-square is its degrees of freedom, its variance twice that; five deviations with a fixed seed.
    let freedom = (cells - 1) as f64;
    assert!(chi_square < freedom + 5.0 * (2.0 * freedom).sqrt() + 1.0, "{chi_square} at {freedom} under {params:?}");
}

#[test]
fn frequencies_follow_the_filtered_softmax() {
    let plain = SamplingParams::default();
    let logits = wave(50);
    for temperature in [0.3, 1.0, 2.0] {
        check_frequencies(&logits, &SamplingParams { temperature, ..plain.clone() });
    }
    for top_k in [1, 3, 40] {
        check_frequencies(&logits, &SamplingParams { top_k, ..plain.clone() });
    }
    for top_p in [0.05, 0.5, 0.99] {
        check_frequencies(&logits, &SamplingParams { top_p, ..plain.clone() });
    }
    check_frequencies(&logits, &SamplingParams { min_p: 0.2, ..plain.clone() });
    check_frequencies(&wave(400), &SamplingParams { top_k: 300, top_p: 0.7, min_p: 0.01, temperature: 0.8, ..plain });
}

#[test]
fn what_the_filters_keep_is_what_sorting_everything_keeps() {
    let logits = wave(3000);
    for (top_k, top_p, min_p) in
        [(-1, 0.3, 0.0), (-1, 0.9, 0.0), (-1, 0.9999, 0.0), (200, 1.0, 0.0), (2999, 0.95, 0.01), (-1, 1.0, 0.5)]
    {
        let params = SamplingParams { top_k, top_p, min_p, ..SamplingParams::default() };
        let mut sampler = sampler(params.clone());
        sampler.draw(&logits).unwrap();
        let total = sampler.weights.iter().map(|&w| f64::from(w)).sum();
        let mut kept: Vec<usize> = sampler.kept(total).into_iter().map(|(_, id)| id as usize).collect();
        kept.sort_unstable();
        let want: Vec<usize> =
            naive(&logits, &params).iter().enumerate().filter(|(_, p)| **p > 0.0).map(|(id, _)| id).collect();
        assert!(kept.len().abs_diff(want.len()) <= 1, "{params:?}: {} {}", kept.len(), want.len());
        assert!(kept.iter().filter(|id| !want.contains(id)).count() <= 1);
    }
}

#[test]
fn greedy_takes_the_lowest_of_equals() {
    let mut sampler = sampler(SamplingParams { temperature: 1e-7, ..SamplingParams::default() });
    assert_eq!(sampler.draw(&[0.5, 2.0, -1.0, 2.0, 2.0]), Ok(1));
    assert_eq!(sampler.draw(&[-3.0; 20]), Ok(0));
    assert_eq!(argmax(&[0.0, -0.0]), Some((0, 0.0)));
    let mut long = wave(1003);
    long[1001] = 9.0;
    assert_eq!(sampler.draw(&long), Ok(1001));
}

#[test]
fn logits_that_are_no_numbers_are_refused() {
    for temperature in [0.0, 1.0] {
        let mut sampler = sampler(SamplingParams { temperature, ..SamplingParams::default() });
        assert_eq!(sampler.draw(&[0.0, f32::NAN, 1.0]), Err(NotFinite));
        assert_eq!(sampler.draw(&[0.0, f32::INFINITY]), Err(NotFinite));
        assert_eq!(sampler.draw(&[f32::NEG_INFINITY; 3]), Err(NotFinite));
        assert_eq!(sampler.draw(&[]), Err(NotFinite));
        assert_eq!(sampler.draw(&[f32::NEG_INFINITY, 1.0]), Ok(1));
    }
}

#[test]
fn a_seed_gives_its_own_series_whatever_was_drawn_before_elsewhere() {
    let logits = wave(500);
    let series = |seed: u64| {
        let mut sampler = Sampler::new(&SamplingParams::default(), seed);
        (0..50).map(|_| sampler.draw(&logits).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(series(1), series(1));
    assert_ne!(series(1), series(2));
    // Fixed for good: a change here changes the answers of every stored seed.
    let drawn: Vec<String> = (0..4).map(|n| format!("{:.6}", uniform(42, n))).collect();
    assert_eq!(drawn, ["0.343292", "0.955747", "0.486350", "0.067358"]);
}

#[test]
fn the_penalty_falls_on_what_was_drawn() {
    let params = SamplingParams { temperature: 0.0, repetition_penalty: 2.0, ..SamplingParams::default() };
    let mut sampler = sampler(params);
    let logits = [1.0, 4.0, 3.0, -1.0];
    // 4 halves to 2 when it has been drawn, 3 to 1.5; then 2 is the greatest again.
    let drawn: Vec<_> = (0..4).map(|_| sampler.draw(&logits).unwrap()).collect();
    assert_eq!(drawn, [1, 2, 1, 1]);
    let below_zero = [-1.0, -1.5];
    let mut sampler = Sampler { drawn: vec![0], ..sampler };
    assert_eq!(sampler.draw(&below_zero), Ok(1));
}

//! Tests layouts: what their lines mean, texts that are not layouts, and error messages of bounded
//! length.
//!
//! The oracle is `spec.rs`. The fuzzer in `src/core/fuzz` looks for stranger texts than these.

use proptest::prelude::*;
use proptest::sample::Index;
use snowflake_core::draw::generator::longest_run;
use snowflake_core::id::layout::{Field, Layout, LayoutError, MAX_TEXT};
use snowflake_core::id::spelling::MAX_QUOTED;

use crate::config;
use crate::spec::{Spec, TIMESTAMPTZ_END_MS, broken_specs, specs};

/// The longest error message: a sentence, and a word cut to [`MAX_QUOTED`] characters.
const LONGEST_MESSAGE: usize = 100 + MAX_QUOTED;

/// Noise, grammar in random order, near misses, and absurdly long texts.
fn strange_texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "\\PC{0,400}",
        concat!(
            "(time|datacenter|worker|sequence|unit|epoch|:|[0-9]{1,3}|1ms|1s|2025-01-01T00:00:00|Z|",
            "\\+|\\.|-|é|[ \t]){0,40}"
        ),
        "((time|datacenter|worker|sequence|unit|epoch):([0-9]{1,3}|1ms|10ms|1s|2025-01-01T00:00:00Z) ?){1,7}",
        "(twitter|js53|snowflake|baidu)[ :\\PC]{0,2}",
        ("\\PC{0,3}", 0..3000_usize).prop_map(|(text, times)| text.repeat(times)),
    ]
}

fn assert_short(error: &LayoutError) -> Result<(), TestCaseError> {
    let message = error.to_string();
    prop_assert!(message.chars().count() <= LONGEST_MESSAGE, "{message}");
    prop_assert!(!message.contains(['\n', '\r']), "{message:?}");
    Ok(())
}

#[test]
fn a_layouts_time_may_end_with_timestamptz_and_not_a_millisecond_later() {
    // Of all widths and units, only 2^53 ms can end there with an epoch that the grammar can write.
    let epoch_ms = TIMESTAMPTZ_END_MS as i64 - (1 << 53);
    let spec = |epoch_ms| Spec { fields: vec![(Field::Time, 53), (Field::Sequence, 10)], unit: "1ms", epoch_ms };
    let layout = Layout::parse(&spec(epoch_ms).text()).unwrap();
    assert_eq!(layout.last_instant_ms(), TIMESTAMPTZ_END_MS as i64 - 1);
    assert_eq!(Layout::parse(&spec(epoch_ms + 1).text()), Err(LayoutError::EndsTooLate { bits: 53 }));
}

proptest! {
    #![proptest_config(config(2000))]

    #[test]
    fn a_layout_is_read_back_from_what_it_prints(spec in specs()) {
        let text = spec.text();
        let layout = spec.layout();
        let print = layout.to_string();
        prop_assert_eq!(&print, &text);
        prop_assert_eq!(Layout::parse(&print), Ok(layout));
        prop_assert!(print.len() < MAX_TEXT && !print.contains('\n'));
        prop_assert!(spec.is_valid());
    }

    #[test]
    fn a_layout_has_the_values_of_its_line(spec in specs()) {
        let layout = spec.layout();
        let mut shift: u32 = spec.fields.iter().map(|(_, bits)| bits).sum();
        let fields: Vec<_> = layout.fields().collect();
        prop_assert_eq!(fields.len(), spec.fields.len());
        for (shown, (field, bits)) in fields.iter().zip(&spec.fields) {
            shift -= bits;
            prop_assert_eq!((shown.field, shown.bits, shown.shift), (*field, *bits, shift));
            prop_assert_eq!(i128::from(shown.max), spec.size(*field) - 1);
        }
        for field in [Field::Time, Field::Datacenter, Field::Worker, Field::Sequence] {
            let max = (spec.bits(field) > 0).then(|| (spec.size(field) - 1) as u64);
            prop_assert_eq!(layout.max_of(field), max);
        }
        prop_assert_eq!(layout.unit().name(), spec.unit);
        prop_assert_eq!(i128::from(layout.unit().ms()), spec.unit_ms());
        prop_assert_eq!(layout.epoch_ms(), spec.epoch_ms);
        prop_assert_eq!(i128::from(layout.last_tick()), spec.last_tick());
        prop_assert_eq!(i128::from(layout.last_instant_ms()), spec.start_ms(spec.last_tick()));
        prop_assert_eq!(i128::from(layout.max_id()), spec.ids() - 1);
        let per_second = 1000 / spec.unit_ms() * spec.size(Field::Sequence);
        prop_assert_eq!(i128::from(layout.ids_per_second()), per_second);
        prop_assert_eq!(i128::from(longest_run(&layout)), (spec.size(Field::Sequence) / 16).max(1));
    }

    #[test]
    fn ticks_are_found_for_any_instant(spec in specs(), ms in any::<i64>(), near in -5000..5000_i64) {
        let layout = spec.layout();
        let end_ms = layout.start_of_ms(layout.last_tick() + 1);
        for ms in [ms, spec.epoch_ms.saturating_add(near), end_ms.saturating_add(near)] {
            // An instant further than an i64 from the epoch is in a tick far outside the layout;
            // which one does not matter.
            if ms.checked_sub(spec.epoch_ms).is_some() {
                prop_assert_eq!(i128::from(layout.tick_at(ms)), spec.tick_at(ms.into()));
            } else {
                prop_assert!(layout.tick_at(ms) < 0 || layout.tick_at(ms) > layout.last_tick() as i64);
            }
        }
    }

    #[test]
    fn a_line_is_a_layout_exactly_if_it_keeps_the_rules(spec in broken_specs()) {
        match Layout::parse(&spec.text()) {
            Ok(layout) => {
                prop_assert!(spec.is_valid());
                prop_assert_eq!(layout.to_string(), spec.text());
            }
            Err(error) => {
                prop_assert!(!spec.is_valid(), "{error}");
                assert_short(&error)?;
            }
        }
    }

    #[test]
    fn a_corrupted_word_is_an_error(
        spec in specs(), word in any::<Index>(), kind in 0..12, stray in "[^0-9m \t\n\r\x0c]", at in any::<Index>(),
    ) {
        let text = spec.text();
        let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let word = word.index(words.len());
        let (name, value) = words[word].clone().split_once(':').map(|(n, v)| (n.to_owned(), v.to_owned())).unwrap();
        let at = at.index(value.len() + 1);
        match kind {
            0 => words[word] = format!("{name}{value}"),
            1 => words[word] = format!("{name}:"),
            2 => words[word] = format!(":{value}"),
            3 => words[word] = format!("{stray}{name}:{value}"),
            4 => words[word] = format!("{name}{stray}:{value}"),
            // No width, unit or instant can take one more character that is not a digit (except
            // "1s", which can take an m).
            5 => words[word] = format!("{name}:{}{stray}{}", &value[..at], &value[at..]),
            6 => words[word] = format!("{}:{value}", name.to_uppercase()),
            7 => words.insert(word, words[word].clone()),
            8 => words.insert(0, "sequence:1".to_owned()),
            9 => words.push("worker:1".to_owned()),
            10 => {
                let epoch = words.pop().unwrap();
                words.insert(words.len() - 1, epoch);
            }
            _ => words.retain(|word| word.starts_with("datacenter:") || word.starts_with("worker:")),
        }
        let corrupted = words.join(" ");
        match Layout::parse(&corrupted) {
            Ok(_) => prop_assert!(false, "{corrupted} is a layout"),
            Err(error) => assert_short(&error)?,
        }
    }

    #[test]
    fn white_space_between_words_makes_no_difference(spec in specs(), spaces in "[ \t\n\r\x0c]{1,4}") {
        let text = format!("{spaces}{}{spaces}", spec.text().replace(' ', &spaces));
        prop_assert_eq!(Layout::parse(&text), Ok(spec.layout()));
    }

    #[test]
    fn no_text_is_too_strange(text in strange_texts()) {
        match Layout::parse(&text) {
            Ok(layout) => prop_assert_eq!(Layout::parse(&layout.to_string()), Ok(layout)),
            Err(error) => assert_short(&error)?,
        }
    }
}

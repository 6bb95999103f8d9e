//! What pixels become before a model reads them: Hugging Face's `preprocessor_config.json`.

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tightrope_data::{ImageShape, Normalization};

/// Name of the file, beside the weights.
pub const FILE: &str = "preprocessor_config.json";

/// Classes of transformers that read it as this module does.
const PROCESSORS: [&str; 3] = ["ViTImageProcessor", "ViTImageProcessorFast", "ViTFeatureExtractor"];
/// Pillow's number of the only way to resample that is supported.
const BILINEAR: u64 = 2;

/// The file's text, as `ViTImageProcessor` reads it.
pub fn text(normalization: &Normalization, shape: ImageShape) -> Vec<u8> {
    // As f64, each is written with all its digits, and read back as it was.
    let exact = |values: &[f32]| values.iter().copied().map(f64::from).collect::<Vec<_>>();
    let value = json!({
        "image_processor_type": PROCESSORS[0],
        "do_resize": true,
        "size": { "height": shape.height, "width": shape.width },
        "resample": BILINEAR,
        "do_rescale": true,
        "rescale_factor": 1.0 / 255.0,
        "do_normalize": true,
        "image_mean": exact(&normalization.mean),
        "image_std": exact(&normalization.std),
    });
    format!("{value:#}\n").into_bytes()
}

/// What a file of this text says of images of so many `channels`. What it leaves out is as in `ViTImageProcessor`.
///
/// # Errors
/// Text that isn't JSON, images that are resampled or cut otherwise than by a `ViTImageProcessor`, pixels that aren't scaled to 0 to 1, and
/// values for other channels.
pub fn read(text: &[u8], channels: usize) -> anyhow::Result<Normalization> {
    let value: Value =
        serde_json::from_slice(text).with_context(|| format!("`{FILE}` is not JSON"))?;
    let switch = |key: &str| value[key].as_bool().unwrap_or(true);
    for key in ["image_processor_type", "feature_extractor_type"] {
        let name = value[key].as_str().unwrap_or(PROCESSORS[0]);
        let supported = PROCESSORS.join(", ");
        ensure!(PROCESSORS.contains(&name), "`{FILE}`: `{key}` is {name}; supported: {supported}");
    }
    ensure!(
        value["do_center_crop"] != json!(true),
        "`{FILE}`: `do_center_crop` is true; supported: false"
    );
    let resample = &value["resample"];
    ensure!(
        !switch("do_resize") || resample.is_null() || *resample == json!(BILINEAR),
        "`{FILE}`: `resample` is {resample}; supported: {BILINEAR}, which is bilinear"
    );
    let size = &value["size"];
    ensure!(
        !size.is_object() || size["height"].is_u64() && size["width"].is_u64(),
        "`{FILE}`: `size` is {size}; supported: one of `height` and `width`"
    );
    let scale = value["rescale_factor"].as_f64().unwrap_or(1.0 / 255.0);
    ensure!(
        switch("do_rescale") && (scale * 255.0 - 1.0).abs() < 1e-3,
        "`{FILE}`: `rescale_factor` is {scale}; supported: 1/255"
    );
    if !switch("do_normalize") {
        return Ok(Normalization { mean: vec![0.0; channels], std: vec![1.0; channels] });
    }
    let centred = Normalization::centred(channels);
    let list = |key: &str, unset: Vec<f32>| -> anyhow::Result<Vec<f32>> {
        let Some(list) = value.get(key).filter(|list| !list.is_null()) else { return Ok(unset) };
        let numbers: Option<Vec<f32>> = list
            .as_array()
            .map(|list| list.iter().filter_map(Value::as_f64).map(|x| x as f32).collect());
        match numbers.filter(|numbers| numbers.len() == channels) {
            Some(numbers) => Ok(numbers),
            None => bail!("`{FILE}`: `{key}` is {list}, and the images have {channels} channels"),
        }
    };
    let (mean, std) = (list("image_mean", centred.mean)?, list("image_std", centred.std)?);
    ensure!(
        mean.iter().all(|x| x.is_finite()) && std.iter().all(|x| x.is_finite() && *x > 0.0),
        "`{FILE}`: `image_mean` is {mean:?} and `image_std` {std:?}; the second must be above 0"
    );
    Ok(Normalization { mean, std })
}

/// True if files of these texts say the same of images, whatever else they say.
pub(crate) fn agree(one: &[u8], other: &[u8]) -> bool {
    let [one, other] = [one, other].map(|text| {
        let value: Value = serde_json::from_slice(text).ok()?;
        let keys = ["image_mean", "image_std"].map(|key| value[key].as_array().map(Vec::len));
        let channels = keys.into_iter().flatten().next().unwrap_or(3);
        let size = value["size"].clone();
        read(text, channels).ok().map(|normalization| (normalization, size))
    });
    one.is_some() && one == other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_normalization_is_read_as_it_was_written() {
        let own = Normalization { mean: vec![0.1, 0.3051, 1e-7], std: vec![0.3763, 0.7, 3.0] };
        let shape = ImageShape { channels: 3, height: 8, width: 12 };
        assert_eq!(read(&text(&own, shape), 3).unwrap(), own);
        assert_eq!(read(b"{}", 1).unwrap(), Normalization::centred(1));
        let plain = read(br#"{"do_normalize": false}"#, 2).unwrap();
        assert_eq!(plain, Normalization { mean: vec![0.0; 2], std: vec![1.0; 2] });
    }

    #[test]
    fn what_is_not_supported_is_named() {
        for (text, words) in [
            ("[", "is not JSON"),
            (
                r#"{"image_processor_type": "CLIPImageProcessor"}"#,
                "is CLIPImageProcessor; supported",
            ),
            (r#"{"do_center_crop": true}"#, "`do_center_crop` is true"),
            (r#"{"resample": 3}"#, "`resample` is 3; supported: 2"),
            (r#"{"size": {"shortest_edge": 224}}"#, r#"`size` is {"shortest_edge":224}"#),
            (r#"{"rescale_factor": 1}"#, "`rescale_factor` is 1"),
            (r#"{"do_rescale": false}"#, "`rescale_factor`"),
            (r#"{"image_mean": [0.5, 0.5]}"#, "the images have 3 channels"),
            (r#"{"image_std": ["a", 1, 1]}"#, "the images have 3 channels"),
            (r#"{"image_std": [0, 1, 1]}"#, "must be above 0"),
        ] {
            let message = format!("{:#}", read(text.as_bytes(), 3).unwrap_err());
            assert!(message.contains(words), "{text}: {message}");
        }
    }
}

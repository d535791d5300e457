//! Media preprocessing for multimodal models, exact to Pillow's bytes.

//! The laboratory: experiments as data, run on the twin and set beside published figures.

//! Series in another order, or with other labels.

use crate::exec::operator::{SeriesMeta, TileReader, VectorOperator};
use crate::steps::Steps;

/// Series of an operator in another order, or with other labels.
pub struct Rearranged {
    input: Box<dyn VectorOperator>,
    series: Vec<SeriesMeta>,
    /// Index of each series in the input; `None` if the order is that of the input.
    order: Option<Vec<u32>>,
}

impl Rearranged {
    /// Selects the listed series, in that order.
    pub fn ordered(input: Box<dyn VectorOperator>, order: Vec<u32>) -> Rearranged {
        let series = order.iter().map(|index| input.series()[*index as usize].clone()).collect();
        Rearranged { input, series, order: Some(order) }
    }

    /// Replaces the labels of all series.
    ///
    /// Panics: another number of series.
    pub fn relabeled(input: Box<dyn VectorOperator>, series: Vec<SeriesMeta>) -> Rearranged {
        assert_eq!(series.len(), input.series().len(), "a label set a series");
        Rearranged { input, series, order: None }
    }
}

impl VectorOperator for Rearranged {
    fn series(&self) -> &[SeriesMeta] {
        &self.series
    }

    fn steps(&self) -> Steps {
        self.input.steps()
    }

    fn has_histograms(&self) -> bool {
        self.input.has_histograms()
    }

    fn has_effects(&self) -> bool {
        self.input.has_effects()
    }

    fn holds_histograms(&self) -> bool {
        self.input.holds_histograms()
    }

    fn become_answer(&mut self) {
        self.input.become_answer();
    }

    fn open<'a>(&'a self, series: &[u32]) -> Box<dyn TileReader + 'a> {
        match &self.order {
            None => self.input.open(series),
            Some(order) => {
                let series: Vec<u32> = series.iter().map(|index| order[*index as usize]).collect();
                self.input.open(&series)
            }
        }
    }
}

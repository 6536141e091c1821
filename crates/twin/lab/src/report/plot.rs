//! Plots as SVG: lines on an axis with a scale, groups of bars on an axis with names. The legend is HTML below the plot,
//! so that it covers nothing, wraps on a phone, and is read aloud.

use crate::experiment::Experiment;
use crate::formula::X;
use crate::rows::Row;
use plotters::coord::types::RangedCoordf64;
use plotters::drawing::DrawingAreaErrorKind;
use plotters::prelude::*;
use plotters::series::LineSeries;

const SIZE: (u32, u32) = (860, 400);
/// Size of all texts, in units of `SIZE`.
const TEXT: u32 = 16;
/// Colors that color-blind readers can distinguish (Okabe and Ito, without yellow).
const COLORS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(120, 128, 136),
];

fn color(index: usize) -> RGBColor {
    COLORS[index % COLORS.len()]
}

/// A plot and its legend.
pub(super) struct Plot {
    /// The drawing.
    pub svg: String,
    /// Names of the curves or groups of bars, with their colors.
    pub legend: Vec<(String, String)>,
    /// Whether published values are drawn, too.
    pub has_published: bool,
}

/// Renders the plot, or returns `None` if there are no values.
pub(super) fn plot(experiment: &Experiment, rows: &[Row]) -> Option<Plot> {
    let figure = Figure::of(experiment, rows)?;
    let mut svg = String::new();
    // Drawing into a string only fails for an invalid size.
    figure.draw(&mut svg).ok()?;
    let legend = figure.curves.iter().enumerate().map(|(index, curve)| {
        let RGBColor(red, green, blue) = color(index);
        (curve.name.to_owned(), format!("#{red:02x}{green:02x}{blue:02x}"))
    });
    Some(Plot {
        // Texts, and bars' published values, have the color of the page's text.
        svg: svg.trim_end().replace("#000000", "currentColor"),
        legend: legend.collect(),
        has_published: figure.curves.iter().any(|curve| !curve.published.is_empty()),
    })
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Failed = DrawingAreaErrorKind<std::io::Error>;

struct Curve<'a> {
    name: &'a str,
    /// Index of the place, and value.
    values: Vec<(f64, f64)>,
    published: Vec<(f64, f64)>,
}

struct Figure<'a> {
    curves: Vec<Curve<'a>>,
    /// Label of each place.
    labels: Vec<String>,
    x_name: String,
    unit: &'a str,
    top: f64,
    bars: bool,
}

impl<'a> Figure<'a> {
    fn of(experiment: &'a Experiment, rows: &'a [Row]) -> Option<Self> {
        let mut xs: Vec<&X> = Vec::new();
        for row in rows {
            if !xs.contains(&&row.x) {
                xs.push(&row.x);
            }
        }
        let measured = experiment.x.measured;
        let numbers = xs.iter().all(|x| matches!(x, X::Number(_)));
        if measured || numbers {
            xs.sort_by(|a, b| a.partial_cmp(b).expect("no place is NaN"));
        }
        let place = |x: &X| xs.iter().position(|at| *at == x).map_or(0.0, |index| index as f64);
        let mut curves: Vec<Curve> = Vec::new();
        for row in rows {
            let index = curves.iter().position(|curve| curve.name == row.series).unwrap_or_else(|| {
                curves.push(Curve { name: &row.series, values: Vec::new(), published: Vec::new() });
                curves.len() - 1
            });
            curves[index].values.push((place(&row.x), row.value));
            if let Some(published) = row.published {
                curves[index].published.push((place(&row.x), published));
            }
        }
        let all = curves.iter().flat_map(|curve| curve.values.iter().chain(&curve.published));
        let top = all.map(|(_, value)| *value).fold(0.0, f64::max);
        if top <= 0.0 {
            return None;
        }
        let axis = &experiment.x;
        let unit = axis.unit.as_ref().map_or_else(String::new, |unit| format!(", {unit}"));
        Some(Self {
            bars: measured || !numbers || xs.len() < 3,
            labels: xs.iter().map(ToString::to_string).collect(),
            curves,
            x_name: format!("{}{unit}", axis.name),
            unit: experiment.measure.unit(),
            top: top * 1.08,
        })
    }

    fn draw(&self, svg: &mut String) -> Result<(), Failed> {
        let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        let count = self.labels.len();
        let mut chart = ChartBuilder::on(&area)
            .margin(12)
            .x_label_area_size(52)
            .y_label_area_size(76)
            .build_cartesian_2d(-0.5..count as f64 - 0.5, 0.0..self.top)?;
        let label = |x: &f64| {
            let index = x.round();
            let near = (x - index).abs() < 0.01 && index >= 0.0;
            near.then(|| self.labels.get(index as usize).cloned()).flatten().unwrap_or_default()
        };
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(128, 136, 144).mix(0.3))
            .axis_style(RGBColor(120, 128, 136))
            .x_labels(count * 2 + 1)
            .x_label_formatter(&label)
            .x_desc(self.x_name.as_str())
            .y_desc(self.unit)
            .label_style(("sans-serif", TEXT))
            .draw()?;
        for (index, curve) in self.curves.iter().enumerate() {
            if self.bars { self.bar(&mut chart, index, curve)? } else { line(&mut chart, index, curve)? }
        }
        area.present()?;
        Ok(())
    }

    fn bar(&self, chart: &mut Chart, index: usize, curve: &Curve) -> Result<(), Failed> {
        let width = 0.8 / self.curves.len() as f64;
        let left = |x: f64| x - 0.4 + width * index as f64;
        let color = color(index);
        let bar = |(x, value): &(f64, f64)| {
            Rectangle::new([(left(*x), 0.0), (left(*x) + width * 0.92, *value)], color.filled())
        };
        chart.draw_series(curve.values.iter().map(bar))?;
        let hollow = |(x, value): &(f64, f64)| {
            Circle::new((left(*x) + width * 0.46, *value), 5, BLACK.stroke_width(2))
        };
        chart.draw_series(curve.published.iter().map(hollow))?;
        Ok(())
    }
}

fn line(chart: &mut Chart, index: usize, curve: &Curve) -> Result<(), Failed> {
    let color = color(index);
    chart.draw_series(LineSeries::new(curve.values.iter().copied(), color.stroke_width(2)).point_size(4))?;
    let hollow = |at: &(f64, f64)| Circle::new(*at, 6, color.stroke_width(2));
    chart.draw_series(curve.published.iter().map(hollow))?;
    Ok(())
}

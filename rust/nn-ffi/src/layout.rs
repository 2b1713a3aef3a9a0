//! Shape, stride and dtype of a tensor: all of it that shapes are checked on, without memory or a library.

use std::fmt;

use crate::{DType, Error, Result};

/// The most dimensions that a tensor may have.
pub const MAX_RANK: usize = 6;

/// Shape, row stride and dtype of a tensor.
///
/// A tensor is row-major. Its first dimension may have a stride larger than a row, as the halves of a fused product have;
/// all dimensions after the first are dense. What a layout describes never takes more than `isize::MAX` bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    sizes: [usize; MAX_RANK],
    rank: usize,
    row_stride: usize,
    inner: usize,
    len: usize,
    dtype: DType,
}

impl Layout {
    /// A dense layout.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when there are more than [`MAX_RANK`] dimensions, or more bytes than an address can count.
    pub fn dense(shape: &[usize], dtype: DType) -> Result<Self> {
        Self::new("shape", shape, None, dtype)
    }

    /// A layout whose rows, the entries of the first dimension, lie `row_stride` elements apart.
    ///
    /// # Errors
    ///
    /// As [`dense`](Self::dense), and when rows would overlap.
    pub fn strided(shape: &[usize], row_stride: usize, dtype: DType) -> Result<Self> {
        Self::new("shape", shape, Some(row_stride), dtype)
    }

    fn new(operation: &'static str, shape: &[usize], row_stride: Option<usize>, dtype: DType) -> Result<Self> {
        if shape.len() > MAX_RANK {
            let message = format!("{shape:?} has {} dimensions; at most {MAX_RANK} are possible", shape.len());
            return Err(Error::shape(operation, message));
        }
        let too_large = || Error::shape(operation, format!("{shape:?} of {dtype} is more than an address can count"));
        let mut sizes = [1; MAX_RANK];
        sizes[..shape.len()].copy_from_slice(shape);
        let product = |sizes: &[usize]| sizes.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
        let inner = product(sizes.get(1..).unwrap_or_default()).ok_or_else(too_large)?;
        let len = product(&sizes).ok_or_else(too_large)?;
        let row_stride = row_stride.unwrap_or(inner);
        if row_stride < inner && shape.first().is_some_and(|rows| *rows > 1) {
            let message = format!("{shape:?} has rows of {inner} elements, which cannot lie {row_stride} apart");
            return Err(Error::shape(operation, message));
        }
        let layout = Self { sizes, rank: shape.len(), row_stride, inner, len, dtype };
        let limit = isize::MAX as usize;
        let extent = sizes[0].checked_mul(row_stride.max(inner)).and_then(|extent| extent.checked_mul(dtype.size()));
        if sizes.iter().any(|size| *size > limit) || extent.is_none_or(|extent| extent > limit) {
            return Err(too_large());
        }
        Ok(layout)
    }

    /// The size of each dimension.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.sizes[..self.rank]
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Elements of one entry of the first dimension.
    #[must_use]
    pub fn row_len(&self) -> usize {
        self.inner
    }

    /// Elements between neighbours of the first dimension; 1 for a tensor of one dimension.
    #[must_use]
    pub fn row_stride(&self) -> usize {
        self.row_stride
    }

    /// Whether the elements lie one after the other. A tensor of one row does, whatever its stride.
    #[must_use]
    pub fn is_dense(&self) -> bool {
        self.row_stride == self.inner || self.len == 0 || self.sizes[0] == 1
    }

    /// Bytes from the first element to the end of the last one.
    #[must_use]
    pub fn bytes(&self) -> usize {
        if self.len == 0 {
            return 0;
        }
        ((self.sizes[0] - 1) * self.row_stride + self.inner) * self.dtype.size()
    }

    /// The same elements in another shape. Of a layout with a row stride only the dimensions after the first may change.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] when the number of elements differs or the stride is in the way.
    pub fn view(&self, shape: &[usize]) -> Result<Self> {
        let view = Self::new("view", shape, None, self.dtype)?;
        let wrong = |why: &str| {
            let message = format!("a tensor of shape {:?}{why} cannot be viewed as {shape:?}", self.shape());
            Err(Error::shape("view", message))
        };
        if view.len != self.len {
            return wrong(&format!(", {} elements,", self.len));
        }
        if self.row_stride == self.inner || self.len == 0 {
            return Ok(view);
        }
        if shape.first() == self.shape().first() && !shape.is_empty() {
            return Self::new("view", shape, Some(self.row_stride), self.dtype);
        }
        if self.is_dense() {
            return Ok(view);
        }
        wrong(&format!(
            " with rows {} elements apart, whose first dimension must stay (contiguous() makes a dense copy),",
            self.row_stride
        ))
    }

    /// Elements `start .. start + len` of dimension 0 or 1, and how many elements lie before the first of them.
    ///
    /// # Errors
    ///
    /// [`Error::Shape`] for another dimension, or a range that is not inside the layout.
    pub fn narrow(&self, dim: usize, start: usize, len: usize) -> Result<(Self, usize)> {
        if dim > 1 || dim >= self.rank {
            let message =
                format!("dim is {dim}; a tensor of shape {:?} can be narrowed in dimension 0 or 1 only", self.shape());
            return Err(Error::shape("narrow", message));
        }
        if start.checked_add(len).is_none_or(|end| end > self.sizes[dim]) {
            let message =
                format!("{start} .. {start} + {len} is not inside dimension {dim} of shape {:?}", self.shape());
            return Err(Error::shape("narrow", message));
        }
        let mut shape = self.sizes;
        shape[dim] = len;
        let step = if dim == 0 { self.row_stride } else { self.inner / self.sizes[1].max(1) };
        let layout = Self::new("narrow", &shape[..self.rank], Some(self.row_stride), self.dtype)?;
        Ok((layout, if layout.len == 0 { 0 } else { start * step }))
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}", self.shape(), self.dtype)?;
        if self.is_dense() { Ok(()) } else { write!(f, ", rows {} apart", self.row_stride) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentence<T>(result: Result<T>) -> String {
        result.err().expect("it is refused").to_string()
    }

    #[test]
    fn dense_layouts_count_elements_and_bytes() -> Result<()> {
        let layout = Layout::dense(&[2, 3, 4], DType::BF16)?;
        assert_eq!((layout.len(), layout.row_len(), layout.row_stride(), layout.bytes()), (24, 12, 12, 48));
        let point = Layout::dense(&[], DType::F32)?;
        assert_eq!((point.len(), point.bytes(), point.is_dense()), (1, 4, true));
        let none = Layout::dense(&[3, 0], DType::F32)?;
        assert_eq!((none.len(), none.bytes(), none.is_dense(), none.is_empty()), (0, 0, true, true));
        Ok(())
    }

    #[test]
    fn what_no_address_can_count_is_refused() {
        for shape in [&[usize::MAX][..], &[1 << 62, 2], &[0, usize::MAX], &[usize::MAX, 0], &[1 << 40, 1 << 40]] {
            assert!(sentence(Layout::dense(shape, DType::F32)).contains("more than an address"), "{shape:?}");
        }
        assert!(sentence(Layout::dense(&[1; 7], DType::F32)).contains("at most 6"));
        assert!(sentence(Layout::strided(&[3, 4], 3, DType::F32)).contains("cannot lie 3 apart"));
        assert!(Layout::strided(&[3, 4], usize::MAX / 2, DType::F32).is_err());
    }

    #[test]
    fn narrowed_rows_keep_their_stride_and_claim_nothing_behind_them() -> Result<()> {
        let whole = Layout::dense(&[3, 4], DType::F32)?;
        let (right, offset) = whole.narrow(1, 1, 2)?;
        assert_eq!((right.shape(), right.row_stride(), offset, right.is_dense()), (&[3, 2][..], 4, 1, false));
        assert_eq!(right.bytes(), (2 * 4 + 2) * 4);
        let (last, offset) = right.narrow(0, 2, 1)?;
        assert_eq!((last.shape(), offset, last.is_dense(), last.bytes()), (&[1, 2][..], 8, true, 8));
        let (nothing, offset) = whole.narrow(0, 3, 0)?;
        assert_eq!((nothing.bytes(), offset), (0, 0));
        assert!(sentence(whole.narrow(0, 2, 2)).contains("is not inside dimension 0"));
        assert!(sentence(whole.narrow(0, usize::MAX, 2)).contains("is not inside dimension 0"));
        assert!(sentence(whole.narrow(2, 0, 1)).contains("dimension 0 or 1 only"));
        assert!(Layout::dense(&[], DType::F32)?.narrow(0, 0, 1).is_err());
        Ok(())
    }

    #[test]
    fn views_keep_the_elements() -> Result<()> {
        let whole = Layout::dense(&[4, 6], DType::I32)?;
        assert_eq!(whole.view(&[2, 2, 6])?.shape(), [2, 2, 6]);
        assert!(sentence(whole.view(&[5, 5])).contains("cannot be viewed"));
        let (half, _) = whole.narrow(1, 0, 3)?;
        assert_eq!(half.view(&[4, 3, 1])?.row_stride(), 6);
        assert!(sentence(half.view(&[12])).contains("contiguous()"));
        let (row, _) = half.narrow(0, 0, 1)?;
        assert!(row.view(&[3])?.is_dense());
        assert_eq!(format!("{half:?}"), "[4, 3] i32, rows 6 apart");
        Ok(())
    }
}
